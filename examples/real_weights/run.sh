#!/usr/bin/env bash
# What real weights do: see README.md. Nothing is downloaded, unless you set HF_HUB_OFFLINE=0.
export HF_HUB_OFFLINE="${HF_HUB_OFFLINE:-1}"
exec "${PYTHON:-python}" "$(dirname "$0")/run.py" "$@"

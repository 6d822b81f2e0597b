"""The paper's experiments: data sets, graders, metrics, resumable runs, reports."""

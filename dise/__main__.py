"""`python -m dise` is the command `dise`."""

from dise_app.cli.main import main

if __name__ == "__main__":
    main()

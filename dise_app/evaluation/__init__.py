"""The paper's experiments: data sets, graders, metrics, runs that resume, reports."""

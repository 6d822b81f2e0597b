"""The laboratory: experiments, data sets, graders, reports and calibrations."""

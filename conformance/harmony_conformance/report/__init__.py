"""Reports: the model, what all renderings share, and the files of a run."""

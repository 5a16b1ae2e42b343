"""Free post-processing of noisy answers: projection onto what some table could have given, integers, records."""

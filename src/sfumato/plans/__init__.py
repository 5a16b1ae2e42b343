"""What is promised before a row is read: plans, predicted errors, covariances, intervals, and their words."""

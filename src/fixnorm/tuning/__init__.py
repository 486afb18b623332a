"""Tuning: a pure plan, a study that cannot be lost, engines that run the trainings."""

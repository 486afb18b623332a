"""Searches replayed on recorded landscapes, hundreds of times: regret against cost.

A landscape stands for the world: its interpolated mean is the truth, and a training is the truth
plus noise (:class:`fixnorm.evidence.landscapes.NoisyLandscape`). A strategy sees trainings alone;
it is judged by the truth at the point it chose.
"""

"""The old names of a study's record, for the report."""

from fixnorm.tuning.trial import State, StudyRecord
from fixnorm.tuning.trial import Trial as TrialRecord

__all__ = ["State", "StudyRecord", "TrialRecord"]

"""The paper's figures and tables, re-run: experiments as functions of their trainings.

:mod:`fixnorm.evidence.experiments` lists them; ``fixnorm reproduce`` runs them.
"""

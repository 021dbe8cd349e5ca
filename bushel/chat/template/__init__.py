"""Conversations in the form that a model's chat template can take (`text.template_abilities`)."""

"""OpenAI's Responses API: items in, items out, and a bounded memory of both.

body ─> schema.py ─> conversation.py (items.py, content_parts.py, tools.py) ─> core.Conversation
events ─> output.py ─> writer.py ─> server-sent events, or one object (envelope.py)
store.py   what `previous_response_id` and `item_reference` name
"""

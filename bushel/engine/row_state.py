"""Fresh state of a row that is served: in pages where its model has them."""

from __future__ import annotations

import mlx.core as mx

from bushel.cache.paged.page_pool import PagePool
from bushel.cache.paged.paged_kv import in_pages
from bushel.models import Model, State


def new_row(model: Model) -> State:
    pool: PagePool | None = model.pages
    return model.make_state() if pool is None else in_pages(model.make_state(), pool)


def ran_a_token(model: Model) -> State:
    """State whose arrays are there, to see what they are like."""
    state = new_row(model)
    mx.eval(model.forward(mx.array([[0]]), [0], state))
    return state

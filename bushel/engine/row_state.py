"""Fresh state of a row that is served: in pages where its model has them."""

from __future__ import annotations

from bushel.cache.paged.page_pool import PagePool
from bushel.cache.paged.paged_kv import in_pages
from bushel.models import Model, State


def new_row(model: Model) -> State:
    pool: PagePool | None = model.pages
    return model.make_state() if pool is None else in_pages(model.make_state(), pool)

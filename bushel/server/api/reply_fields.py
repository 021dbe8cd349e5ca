"""Fields of replies that several APIs have, each with what it says."""

from __future__ import annotations

from typing import Annotated

from bushel.server.api.descriptions import SPEAKER, about

ReplyId = Annotated[
    str,
    about(
        "The request's id, behind the API's prefix if it has one: DELETE /v1/requests takes both."
    ),
]
Created = Annotated[int, about("When the reply was begun, in seconds since 1970.")]
ReplyModel = Annotated[str, about("The name that the model which replied is served under.")]
Index = Annotated[int, about("Its number among those of the request, from 0.")]
USAGE = about("How many tokens the request took.")
PromptTokens = Annotated[int, about("Tokens of the prompt.")]
ReplyTokens = Annotated[int, about("Tokens of the reply, thoughts included.")]
TotalTokens = Annotated[int, about("Tokens of prompt and reply together.")]
CachedTokens = Annotated[
    int, about("Tokens of the prompt that were read from the prefix cache and not computed.")
]
AddedTokens = Annotated[int, about("Tokens of the prompt that are kept for later ones.")]
AcceptedTokens = Annotated[
    int, about("Tokens of the reply that were guessed ahead, by whoever `--speculate` names.")
]
RejectedTokens = Annotated[int, about("Tokens that were guessed ahead and not said.")]
ROLE = about(SPEAKER)
FIRST_ID = about("The id of the first one listed.")
LAST_ID = about("The id of the last one listed.")

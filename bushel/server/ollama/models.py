"""What is served: `/api/tags`, `/api/show`, `/api/ps` and `/api/version`."""

from __future__ import annotations

import hashlib
import math
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from bushel.core.checkpoint import is_hub_id
from bushel.core.hub_errors import HubError
from bushel.server.api.descriptions import about
from bushel.server.api.errors import InvalidField
from bushel.server.api.fields import Hint
from bushel.server.api.openapi import documented
from bushel.server.api.shared_fields import IGNORED, MODEL
from bushel.server.api.unread_fields import note_unread
from bushel.server.errors import ApiError
from bushel.server.http.disconnect import Awaited
from bushel.server.http.request_body import JsonRoute
from bushel.server.hub.jobs import run_job
from bushel.server.hub.messages import InspectModel
from bushel.server.ollama.errors import OllamaError
from bushel.server.ollama.names import served_as
from bushel.server.ollama.routes import ERRORS

if TYPE_CHECKING:
    from bushel.server.service.service import Service
    from bushel.server.service.services import Services

# Whose API this is; clients ask before they use what came with some version.
OLLAMA_VERSION = "0.13.0"
_FORMAT = "safetensors"
_STAYS = datetime(9999, 12, 31, tzinfo=UTC)
_NOT_LOADED = ("unloaded", "queued", "failed")
_began = datetime.fromtimestamp(int(time.time()), UTC)

Capability = Literal["completion", "vision", "tools", "thinking", "embedding"]
_NAME = about("A name that requests may use.")
_DIGEST = about("Of the name: there are no manifests here.")
_SINCE = about("When the server began.")


class OllamaDetails(BaseModel):
    """Empty where it is not known before the model is loaded."""

    parent_model: Annotated[str, about("Always empty.")] = ""
    format: Annotated[str, about("Of its weights.")] = _FORMAT
    family: str = Field(description="Its architecture, as its config names it.")
    families: list[str] = Field(description="The same.")
    parameter_size: str = Field(description="How many numbers its weights are.")
    quantization_level: str = Field(description="As its config tells it.")


_DETAILS = about("What kind of model it is.")


class OllamaModel(BaseModel):
    name: Annotated[str, _NAME]
    model: Annotated[str, _NAME]
    modified_at: Annotated[datetime, _SINCE]
    size: int = Field(description="Bytes on disk; 0 until it was loaded once.")
    digest: Annotated[str, _DIGEST]
    details: Annotated[OllamaDetails, _DETAILS]


class OllamaModelList(BaseModel):
    models: list[OllamaModel] = Field(description="Every name, with the model behind it.")


class OllamaRunning(BaseModel):
    name: Annotated[str, _NAME]
    model: Annotated[str, _NAME]
    size: int = Field(description="Bytes of memory that its engine may use.")
    size_vram: int = Field(description="The same.")
    digest: Annotated[str, _DIGEST]
    details: Annotated[OllamaDetails, _DETAILS]
    expires_at: datetime = Field(
        description="When it may be unloaded, if nobody asks again; in the year 9999 if it stays."
    )
    context_length: int = Field(description="Tokens of a prompt and its reply; 0: no limit.")


class OllamaRunningList(BaseModel):
    models: list[OllamaRunning] = Field(description="Models that are loaded, or on their way.")


class OllamaShowRequest(BaseModel):
    model_config = ConfigDict(extra="allow")

    model: Annotated[Hint | None, MODEL] = None
    name: Hint | None = Field(None, description="The older name of `model`.")
    verbose: Annotated[Any, IGNORED] = None


class OllamaShowReply(BaseModel):
    license: Annotated[str, about("Always empty: see the model's page.")] = ""
    modelfile: Annotated[str, about("Always empty: there is none.")] = ""
    parameters: str = Field(description="Defaults of its own for sampling, a line each.")
    template: str = Field(description="Its chat template, in Jinja; empty until it was loaded.")
    details: Annotated[OllamaDetails, _DETAILS]
    model_info: dict[str, Any] = Field(
        description="general.architecture, and what is known of it behind that name, such as "
        "its context_length."
    )
    capabilities: list[Capability] = Field(description="What it can do.")
    modified_at: Annotated[datetime, _SINCE]


class OllamaVersion(BaseModel):
    version: str = Field(description="The version of Ollama whose API this is.")


@dataclass(frozen=True)
class ModelFacts:
    """What the replies here are made of."""

    family: str = ""
    task: str = "generate"
    sees: bool = False
    tools: bool = False
    thinks: bool = False
    context: int | None = None
    template: str = ""
    parameters: int | None = None
    quantization: str = ""
    sampling: tuple[tuple[str, float], ...] = ()

    @property
    def details(self) -> OllamaDetails:
        return OllamaDetails(
            family=self.family,
            families=[self.family] if self.family else [],
            parameter_size="" if self.parameters is None else _rounded(self.parameters),
            quantization_level=self.quantization,
        )

    @property
    def capabilities(self) -> list[Capability]:
        if self.task != "generate":
            return ["embedding"] if self.task == "embed" else []
        more: dict[Capability, bool] = {
            "vision": self.sees,
            "tools": self.tools,
            "thinking": self.thinks,
        }
        return ["completion", *(name for name, has in more.items() if has)]

    @property
    def model_info(self) -> dict[str, Any]:
        told: dict[str, Any] = {"general.architecture": self.family}
        if self.parameters is not None:
            told["general.parameter_count"] = self.parameters
        if self.context is not None:
            told[f"{self.family}.context_length"] = self.context
        return told


def _rounded(parameters: int) -> str:
    billions = parameters / 1e9
    return f"{billions:.1f}B" if billions >= 1 else f"{parameters / 1e6:.1f}M"


def _known(service: Service) -> ModelFacts | None:
    """Of a model that was loaded once."""
    info = service.model_info
    if info is None:
        return None
    return ModelFacts(
        family=info.model_type,
        task=info.task,
        sees=info.sees,
        tools=bool(info.reply_format.tools),
        thinks=bool(info.reply_format.thinking),
        context=info.context,
        template=info.template,
        sampling=_listed(asdict(info.defaults)),
    )


async def _looked_up(service: Service) -> ModelFacts:
    """Of one that was not: its checkpoint is opened, in a process of its own."""
    engine = service.options.engine
    on_disk = is_hub_id(engine.model)
    job = InspectModel(engine.model, on_disk, engine.dtype, engine.trust_remote_code, None, None)
    try:
        told = await run_job(job)
    except HubError as error:
        raise ApiError(503, str(error), code=error.code, param="model") from error
    return ModelFacts(
        family=told["model_type"],
        task=told["task"],
        sees=told["sees"],
        tools=bool(told["tools"]),
        thinks=bool(told["thinking"]),
        context=told["context"],
        parameters=told["parameters"],
        quantization=told["quantization"],
        sampling=_listed(told["sampling"]),
    )


def _listed(sampling: dict[str, Any]) -> tuple[tuple[str, float], ...]:
    return tuple((name, value) for name, value in sampling.items() if value is not None)


def digest_of(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


@lru_cache(maxsize=64)
def _size_on_disk(path: str) -> int:
    return sum(file.stat().st_size for file in Path(path).glob("*.safetensors"))


def listing_routes(services: Services) -> APIRouter:
    routes = APIRouter(route_class=JsonRoute)
    looked_up: dict[str, ModelFacts] = {}  # by the model that an engine is started with
    plain = documented(model=OllamaError)

    def card(name: str) -> OllamaModel:
        service = services.of(name)
        info = service.model_info
        return OllamaModel(
            name=name,
            model=name,
            modified_at=_began,
            size=0 if info is None else _size_on_disk(info.path),
            digest=digest_of(name),
            details=(_known(service) or ModelFacts()).details,
        )

    def running(service: Service) -> OllamaRunning | None:
        report = services.loading.report(service)
        if report.state in _NOT_LOADED:
            return None
        seconds = service.options.keep_alive
        stays = report.pinned or math.isinf(seconds)
        facts = _known(service) or ModelFacts()
        return OllamaRunning(
            name=service.names.main,
            model=service.names.main,
            size=report.memory_bytes,
            size_vram=report.memory_bytes,
            digest=digest_of(service.names.main),
            details=facts.details,
            expires_at=_STAYS if stays else datetime.now(UTC) + timedelta(seconds=seconds),
            context_length=facts.context or 0,
        )

    async def facts(service: Service) -> ModelFacts:
        model = service.options.engine.model
        if (known := _known(service)) is not None:
            return known
        if model not in looked_up:
            looked_up[model] = await _looked_up(service)
        return looked_up[model]

    @routes.get("/api/tags", responses=plain, summary="The models that are served, for Ollama's")
    async def tags() -> OllamaModelList:
        return OllamaModelList(models=[card(name) for name in services.names])

    @routes.get("/api/ps", responses=plain, summary="The models that are loaded, for Ollama's")
    async def ps() -> OllamaRunningList:
        cards = [running(service) for service in services.all]
        return OllamaRunningList(models=[card for card in cards if card is not None])

    @routes.get("/api/version", responses=plain, summary="The version of Ollama whose API this is")
    async def version() -> OllamaVersion:
        return OllamaVersion(version=OLLAMA_VERSION)

    @routes.post(
        "/api/show",
        response_model=OllamaShowReply,
        responses=ERRORS,
        summary="What a model is and can do, for Ollama's clients",
    )
    async def show(body: OllamaShowRequest, request: Request) -> Response:
        note_unread(body)
        name = body.model or body.name
        if not name:
            raise InvalidField("model", "is missing")
        service, _ = served_as(services, name)

        async def work() -> OllamaShowReply:
            told = await facts(service)
            return OllamaShowReply(
                parameters="\n".join(f"{name} {value:g}" for name, value in told.sampling),
                template=told.template,
                details=told.details,
                model_info=told.model_info,
                capabilities=told.capabilities,
                modified_at=_began,
            )

        return Awaited(work)

    return routes

"""Token counts, summed over the rounds of a response."""

from dataclasses import dataclass

from outlast.protocol.json import JsonObject


@dataclass(frozen=True, slots=True)
class Usage:
    """Counts of one round, or their sum. The same figures appear in stream, JSON and GET."""

    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    total_tokens: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            total_tokens=self.total_tokens + other.total_tokens,
        )

    def wire(self) -> JsonObject:
        """The `usage` object of a response."""
        return {
            "input_tokens": self.input_tokens,
            "input_tokens_details": {"cached_tokens": self.cached_tokens},
            "output_tokens": self.output_tokens,
            "output_tokens_details": {"reasoning_tokens": self.reasoning_tokens},
            "total_tokens": self.total_tokens,
        }


def parse_usage(raw: JsonObject | None) -> Usage:
    """Counts of an upstream's `usage` object in Responses spelling; what is missing or null is 0."""
    if not raw:
        return Usage()
    inputs, outputs = raw.get("input_tokens") or 0, raw.get("output_tokens") or 0
    return Usage(
        input_tokens=inputs,
        cached_tokens=(raw.get("input_tokens_details") or {}).get("cached_tokens") or 0,
        output_tokens=outputs,
        reasoning_tokens=(raw.get("output_tokens_details") or {}).get("reasoning_tokens") or 0,
        total_tokens=raw.get("total_tokens") or inputs + outputs,
    )

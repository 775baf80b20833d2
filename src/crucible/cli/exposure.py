"""`crucible exposure`: settings -> expected exposures, status, remedy."""

from __future__ import annotations

from typing import Annotated

import typer

from crucible.cli import output
from crucible.contrast.exposure import expected_exposure

app = typer.Typer(add_completion=False)


@app.command()
def exposure(
    steps: Annotated[int, typer.Option(help="Training steps S.")],
    batch_size: Annotated[int, typer.Option(help="Batch size B.")],
    tier3_probability: Annotated[float, typer.Option(help="Probability of a tier-3 item per batch slot.")],
    legacy_ratio: Annotated[float, typer.Option(help="Share of tier-3 draws that go to the legacy pool.")],
    legacy_pool: Annotated[int, typer.Option(help="Number of legacy bundles.")],
    json: output.AsJson = False,
) -> None:
    """How often each legacy item is expected to be seen: E = S x B x p x r / L, and whether that is healthy.

    Example: crucible exposure --steps 10000 --batch-size 32 --tier3-probability 0.10 --legacy-ratio 0.75 --legacy-pool 454
    """
    result = expected_exposure(
        steps=steps,
        batch_size=batch_size,
        tier3_probability=tier3_probability,
        legacy_ratio=legacy_ratio,
        legacy_pool=legacy_pool,
    )
    if json:
        output.json_document(result)
        return
    output.out(f"{result.expected:.1f} expected exposures per legacy item: {result.status}. {result.action}.")
    if result.healthy_with:
        remedy = result.healthy_with
        ways = [f"--steps {remedy.steps}"] if remedy.steps else []
        ways += [f"--legacy-ratio {remedy.legacy_ratio:.3f}"] if remedy.legacy_ratio else []
        ways += [f"--legacy-pool {remedy.legacy_pool}"] if remedy.legacy_pool else []
        output.out("Healthy with any one of: " + (", ".join(ways) or "nothing, because nobody draws from the pool"))

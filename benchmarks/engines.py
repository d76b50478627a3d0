"""Compare sampling in process, from requests to a written table, with the bare library on the same prompts.

    python benchmarks/engines.py [--engine vllm] [--problems 1024] [--attempts 4] [--tokens 64] [--rounds 3]
    python benchmarks/engines.py --engine transformers --model results/sft/smol-form --problems 64 --tokens 20

A small model with random weights, or the one in the folder `--model`, samples up to `--tokens` tokens for each prompt.
Bare vLLM is one `LLM.generate` over all prompts with the same sampling parameters; bare transformers is one `generate`
for each 256 of them, sorted by length. Our time includes the journal with its fsyncs, compaction and the table. Both
are loaded beforehand and take turns in one process.
"""

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
os.environ.setdefault("OMP_NUM_THREADS", "1")


def main() -> None:
    from proofmill import base, problems, responses
    from proofmill.artifacts.jobs import Job
    from proofmill.artifacts.stamps import new_stamp
    from proofmill.artifacts.tables import Table
    from proofmill.calls.calls import Asker
    from proofmill.engines.local import TransformersEngine, render
    from proofmill.engines.vllm import VllmEngine
    from proofmill.schema.entries.model_entries import Base
    from proofmill.schema.entries.problem_entries import Problems
    from proofmill.schema.entries.response_entries import Responses

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("problems", 1024), ("attempts", 4), ("tokens", 64), ("rounds", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--engine", choices=["vllm", "transformers"], default="vllm")
    parser.add_argument("--model", type=Path, help="folder with weights (default: a small model with random weights)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder)

        def job(name: str, *parents: str, fingerprint: str = "f") -> Job:
            stamp = new_stamp(name, '{"entry": {}}', fingerprint, dict.fromkeys(parents, "f"), {})
            return Job(Table(name, results), {}, fingerprint, stamp, engine=options.engine)

        source = "small-tasks" if options.model else "arithmetic"
        problems.main(Problems(source=source, rows=options.problems), job("problems/x"))
        model = {"source": "folder", "path": str(options.model.absolute())} if options.model else {"source": "scratch"}
        base.main(Base(**model, problems=None if options.model else "problems/x"), job("base/x", "problems/x"))
        engine = {"vllm": VllmEngine, "transformers": TransformersEngine}[options.engine](Table("base/x", results))
        bare_generate = {"vllm": bare_vllm, "transformers": bare_transformers}[options.engine]
        parents, shares, rows = ("problems/x", "base/x"), [], options.problems * options.attempts
        print(f"{rows:,} rows of at most {options.tokens} tokens\n")
        print("| round | ours, rows/s | bare, rows/s | ours over bare |\n|---|---|---|---|")
        for turn in range(options.rounds + 1):
            entry = Responses(
                problems="problems/x",
                model="base/x",
                attempts=options.attempts,
                max_tokens=options.tokens,
                prompt="solve",
                seed=turn,
            )
            asked = [q for _, q in responses.requests(entry, job("responses/x", *parents))["base/x"].with_rows()]
            start = time.monotonic()
            bare_generate(engine, render(engine.tokenizer, asked), asked, options.tokens)
            bare = rows / (time.monotonic() - start)
            start = time.monotonic()
            with_engine(responses, Asker, engine, entry, job(f"responses/r{turn}", *parents, fingerprint=f"f{turn}"))
            ours = rows / (time.monotonic() - start)
            if turn:  # the first turn warms up
                shares.append(ours / bare)
                print(f"| {turn} | {ours:,.0f} | {bare:,.0f} | {ours / bare:.3f} |", flush=True)
        print(f"\nmedian of ours over bare: {statistics.median(shares):.3f}")


def bare_vllm(engine, prompts, asked, tokens) -> None:
    """Sample with vLLM alone."""
    from vllm import SamplingParams, TokensPrompt

    sampling = [SamplingParams(temperature=1.0, max_tokens=tokens, seed=q.row_seed) for q in asked]
    engine.llm.generate([TokensPrompt(prompt_token_ids=ids) for ids in prompts], sampling, use_tqdm=False)


def bare_transformers(engine, prompts, asked, tokens) -> None:
    """Sample with transformers alone."""
    import torch

    ordered = sorted(prompts, key=len)
    with torch.inference_mode():
        for start in range(0, len(ordered), 256):
            batch = engine.tokenizer.pad({"input_ids": ordered[start : start + 256]}, return_tensors="pt")
            out = engine.network.generate(
                **batch.to(engine.device), do_sample=True, max_new_tokens=tokens, eos_token_id=engine.ends,
                pad_token_id=engine.tokenizer.pad_token_id,
            )  # fmt: skip
            engine.tokenizer.batch_decode(out[:, batch["input_ids"].shape[1] :])


def with_engine(responses, asker, engine, entry, job) -> None:
    """Run our stage with a loaded engine."""
    from contextlib import contextmanager

    from proofmill.calls.budget import Budget
    from proofmill.calls.journal import Journal

    @contextmanager
    def loaded(job, model):
        with Journal(job.table.calls) as journal:
            yield asker(job.name, engine, journal, Budget(None, job.table.results / "calls", journal))

    responses.open_engine.asking, real = loaded, responses.open_engine.asking
    try:
        responses.main(entry, job)
    finally:
        responses.open_engine.asking = real


if __name__ == "__main__":
    main()

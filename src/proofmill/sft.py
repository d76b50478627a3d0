"""One row of `sft` is a number measured at a training step; the trained weights stand beside the table.

Supervised fine-tuning with TRL's SFTTrainer, on the answer only.

How we differ:
1. An example longer than `max-length` stops the stage before training; TRL would cut it silently.
2. Checkpoints stand outside declared outputs and are found again by the entry's fingerprint: a killed job goes on.
"""

from proofmill import kinds
from proofmill.jobs import Job, run
from proofmill.tables import TableError


def main(entry: kinds.Sft, job: Job) -> None:
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    from proofmill import training

    model, tokenizer = training.load(job, entry.model)
    conversations = [row["messages"] for row in job.parent(entry.examples).rows("messages")]
    check_lengths(job, entry, tokenizer, conversations)
    data = Dataset.from_list([{"prompt": messages[:-1], "completion": messages[-1:]} for messages in conversations])
    config = SFTConfig(
        **training.arguments(entry, job, entry.log_every),
        max_steps=entry.steps or -1,
        num_train_epochs=entry.epochs or 1,
        per_device_train_batch_size=training.per_device(job, entry.batch),
        max_length=entry.max_length,
        completion_only_loss=True,
    )
    trainer = SFTTrainer(model=model, args=config, train_dataset=data, processing_class=tokenizer)
    seconds = training.train(trainer, job)
    rows = list(training.steps(trainer))
    weights = training.save(trainer, tokenizer, job)
    job.finish(rows, {"steps": trainer.state.global_step}, weights, training_seconds=seconds)


def check_lengths(job: Job, entry: kinds.Sft, tokenizer, conversations: list[list[dict]]) -> None:
    lengths = [len(tokenizer.apply_chat_template(c, tokenize=True, return_dict=False)) for c in conversations]
    if long := [n for n in lengths if n > entry.max_length]:
        raise TableError(
            f"{entry.examples}: {len(long):,} of {len(lengths):,} examples are longer than `max-length` {entry.max_length} "
            f"(the longest has {max(long):,} tokens); expected none to be cut. Raise `max-length`, or drop them in the examples."
        )


if __name__ == "__main__":
    run(main)

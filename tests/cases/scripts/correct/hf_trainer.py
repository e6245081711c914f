import os

from datasets import load_dataset
from transformers import AutoModelForSequenceClassification, AutoTokenizer, Trainer, TrainingArguments


def main():
    args = TrainingArguments(output_dir="out", per_device_train_batch_size=8)
    tokenizer = AutoTokenizer.from_pretrained("bert-base-uncased")
    with args.main_process_first(desc="tokenise"):
        data = load_dataset("imdb").map(lambda row: tokenizer(row["text"], truncation=True), batched=True)
    model = AutoModelForSequenceClassification.from_pretrained("bert-base-uncased")
    trainer = Trainer(model=model, args=args, train_dataset=data["train"], eval_dataset=data["test"])
    trainer.train()
    metrics = trainer.evaluate()
    if trainer.is_world_process_zero():
        print(metrics)
    if int(os.environ.get("LOCAL_RANK", 0)) == 0:
        tokenizer.save_pretrained("out")


if __name__ == "__main__":
    main()

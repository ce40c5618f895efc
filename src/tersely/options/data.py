"""Options that say where rows come from."""

from __future__ import annotations

import os
from dataclasses import dataclass

from ..strategy import DYNABERT, PRUNE, PRUNE_EMBEDDINGS, PTQ, QAT
from .option import option


@dataclass(frozen=True)
class DataOptions:
    """Where rows come from and which columns hold what."""

    train_file: str | None = option("rows to train on (csv, tsv, json, jsonl, parquet, CoNLL txt, SQuAD json)")
    eval_file: str | None = option("rows to score on")
    test_file: str | None = option("rows that choose nothing and report at the end")
    unlabelled_file: str | None = option(
        "prune_embeddings, prune, dynabert, qat, ptq: more rows, without labels, for all that needs none; "
        "plain text too, a text a line",
        steps=(PRUNE_EMBEDDINGS, PRUNE, DYNABERT, QAT, PTQ),
    )
    dataset: str | None = option("a data set's name ('clue tnews', 'glue mrpc', msra_ner, cmrc2018) or folder")
    data_dir: str | None = option("where data sets' names are looked up ($TERSELY_DATA)")
    header: bool | None = option("whether csv and tsv files begin with column names (seen by itself unless set)")
    text_column: str | None = option("column of the text")
    text_pair_column: str | None = option("column of the second text")
    label_column: str | None = option("column of the label")
    words_column: str | None = option("column of the words")
    tags_column: str | None = option("column of the tags")
    question_column: str | None = option("column of the question")
    context_column: str | None = option("column of the context")
    answers_column: str | None = option("column of the answers")

    def folder(self) -> str | None:
        """Where data sets lie."""
        return self.data_dir or os.environ.get("TERSELY_DATA")

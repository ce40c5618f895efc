// Answers of transformers.js to what a file asks, as JSON; run where it is installed: node transformers_js.mjs ASKED.json
import { readFileSync } from "node:fs";

import { AutoModelForSequenceClassification, AutoTokenizer, env, pipeline } from "@huggingface/transformers";

const { folder, asked } = JSON.parse(readFileSync(process.argv[2], "utf-8"));
env.allowRemoteModels = false;
env.localModelPath = folder;

const said = [];
for (const { task, model, dtype, inputs } of asked) {
  if (task === "pair") {
    const tokenizer = await AutoTokenizer.from_pretrained(model);
    const classify = await AutoModelForSequenceClassification.from_pretrained(model, { dtype });
    const [text, text_pair] = inputs;
    const { logits } = await classify(tokenizer(text, { text_pair, return_token_type_ids: true }));
    said.push(logits.tolist()[0]);
    continue;
  }
  const ask = await pipeline(task, model, { dtype });
  ask.tokenizer.return_token_type_ids = true;
  const options = { "text-classification": { top_k: null }, "token-classification": { ignore_labels: [] } }[task];
  said.push(await ask(...inputs, ...(options ? [options] : [])));
}
console.log(JSON.stringify(said));

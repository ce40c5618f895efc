// Answers of transformers.js to what a file asks, as JSON; run where it is installed: node transformers_js.mjs ASKED.json
import { readFileSync } from "node:fs";

import { AutoModelForSequenceClassification, AutoTokenizer, env, pipeline } from "@huggingface/transformers";
import * as web from "onnxruntime-web";

const { folder, asked } = JSON.parse(readFileSync(process.argv[2], "utf-8"));
env.allowRemoteModels = false;
env.localModelPath = folder;
web.env.wasm.numThreads = 1;
const tensor = (row) => new web.Tensor("int64", BigInt64Array.from(row.map(BigInt)), [1, row.length]);

const said = [];
for (const { task, model, dtype, inputs } of asked) {
  if (task === "browser") {
    // What it runs in browsers: ONNX Runtime as WebAssembly. Node has the native one.
    const session = await web.InferenceSession.create(readFileSync(folder + model), { executionProviders: ["wasm"] });
    const feed = Object.fromEntries(Object.entries(inputs).map(([name, row]) => [name, tensor(row)]));
    said.push(Array.from((await session.run(feed)).logits.data));
    continue;
  }
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

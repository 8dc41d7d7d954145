// An agent of the Vercel AI SDK with one tool: `vercel_ai_client.mjs PACKAGES URL MODEL PROMPT`.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [packages, url, model, prompt] = process.argv.slice(2);
const require = createRequire(`${packages}/`);
const load = (name) => import(pathToFileURL(require.resolve(name)).href);
const { jsonSchema, streamText, tool, ...ai } = await load("ai");
const { createOpenAICompatible } = await load("@ai-sdk/openai-compatible");
const result = streamText({
  model: createOpenAICompatible({ name: "reference", baseURL: url, apiKey: "not-a-secret" })(model),
  system: "Answer in one sentence.",
  prompt,
  stopWhen: (ai.isStepCount ?? ai.stepCountIs)(4),
  tools: {
    get_weather: tool({
      description: "Current weather of a city.",
      inputSchema: jsonSchema({ type: "object", properties: { city: { type: "string" } }, required: ["city"] }),
      execute: async ({ city }) => `It is sunny in ${city}.`,
    }),
  },
});
console.log(await result.text);

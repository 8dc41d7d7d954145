// A Harmony renderer for conversations without tools, and its adapter:
//
//   harmony-conformance golden run --command 'node examples/adapters/javascript/adapter.js'
//
// It renders text. Whoever has a tokenizer answers with `tokens`, which shows whether typed markers stay ordinary text.
const readline = require("node:readline");

class Unsupported extends Error {}

function partText(part, role) {
  const { type, ...fields } = part;
  if (type === "text" && typeof part.text === "string") return part.text;
  const owner = { system_content: "system", developer_content: "developer" }[type];
  if (owner === undefined) throw new Error(`invalid content type ${type}`);
  if (owner !== role) throw new Error(`${type} in a message of the role ${role}`);
  if (fields.tools || fields.response_formats) throw new Unsupported();
  return owner === "system" ? systemText(fields) : developerText(fields);
}

function systemText({ model_identity, knowledge_cutoff, conversation_start_date, reasoning_effort, channel_config }) {
  const lines = [];
  if (model_identity != null) lines.push(model_identity);
  if (knowledge_cutoff != null) lines.push(`Knowledge cutoff: ${knowledge_cutoff}`);
  if (conversation_start_date != null) lines.push(`Current date: ${conversation_start_date}`);
  const sections = lines.length ? [lines.join("\n")] : [];
  if (reasoning_effort != null) {
    if (!["Low", "Medium", "High"].includes(reasoning_effort)) throw new Error(`invalid effort ${reasoning_effort}`);
    sections.push(`Reasoning: ${reasoning_effort.toLowerCase()}`);
  }
  if (channel_config != null) {
    const { valid_channels, channel_required } = channel_config;
    if (typeof channel_required !== "boolean") throw new Error("invalid channel_required");
    const required = channel_required ? " Channel must be included for every message." : "";
    if (valid_channels.length) sections.push(`# Valid channels: ${valid_channels.join(", ")}.${required}`);
  }
  return sections.join("\n\n");
}

function developerText({ instructions }) {
  return instructions == null ? "" : `# Instructions\n\n${instructions}`;
}

function messageText({ role, name, recipient, channel, content_type: type, content }) {
  if (!["user", "assistant", "system", "developer", "tool"].includes(role)) throw new Error(`invalid role ${role}`);
  if (typeof content !== "string" && !Array.isArray(content)) throw new Error("invalid content");
  if (name != null && typeof name !== "string") throw new Error("invalid name");
  if (role === "tool" && name == null) throw new Error("a tool without a name");
  let header = role === "tool" ? name : name == null ? role : `${role}:${name}`;
  if (recipient != null && recipient !== "all") header += ` to=${recipient}`;
  if (channel != null) header += `<|channel|>${channel}`;
  if (type != null) header += ` ${type}`;
  const text = typeof content === "string" ? content : content.map((part) => partText(part, role)).join("");
  return `<|start|>${header}<|message|>${text}${role === "assistant" && recipient != null ? "<|call|>" : "<|end|>"}`;
}

// Without the reasoning before the first final answer, if the assistant's last message is a final answer.
function withoutOldReasoning(messages) {
  const last = messages.filter(({ role }) => role === "assistant").at(-1);
  if (last?.channel !== "final") return messages;
  const first = messages.findIndex(({ channel }) => channel === "final");
  return messages.filter(({ channel }, index) => index >= first || channel !== "analysis");
}

function render({ messages, mode, next_role = "assistant", auto_drop_analysis = true, conversation_has_function_tools }) {
  if (conversation_has_function_tools) throw new Unsupported();
  const kept = auto_drop_analysis && mode !== "message" ? withoutOldReasoning(messages) : messages;
  const text = kept.map(messageText).join("");
  if (mode === "completion") return `${text}<|start|>${next_role}`;
  const last = messages.at(-1);
  const isAnswer = last?.role === "assistant" && last.channel === "final";
  return mode === "training" && isAnswer ? text.replace(/<\|(end|call)\|>$/, "<|return|>") : text;
}

function answer(request) {
  if (request.kind !== "render") return { unsupported: true };
  try {
    return { text: render(request) };
  } catch (refusal) {
    return refusal instanceof Unsupported ? { unsupported: true } : { error: refusal.message };
  }
}

readline.createInterface({ input: process.stdin }).on("line", (line) => {
  const request = JSON.parse(line);
  process.stdout.write(`${JSON.stringify({ id: request.id, ...answer(request) })}\n`);
});

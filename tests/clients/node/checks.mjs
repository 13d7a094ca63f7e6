// What the official `openai` package for Node is held to. One line of JSON per check: {"name", "error"}, null when it held.
// tests/clients/drive_node.py starts a server, runs this and reads the lines.
// Environment: BASE_URL; LINE_URL, a way to the server that is cut in the middle of a long text; MODEL; MCP_URL; GREETING.
import assert from 'node:assert/strict';

import OpenAI from 'openai';
import { zodTextFormat } from 'openai/helpers/zod';
import { z } from 'zod';

const { BASE_URL, LINE_URL, MODEL, MCP_URL, GREETING } = process.env;
const connect = (baseURL) => new OpenAI({ baseURL, apiKey: 'none', maxRetries: 0, timeout: 60_000 });
const client = connect(BASE_URL);
const responses = client.responses;

const use = (name, given) => `use tool ${name} with ${JSON.stringify(given)}`;
const lookup = {
  type: 'function',
  name: 'lookup',
  description: 'Looks a key up.',
  strict: true,
  parameters: { type: 'object', properties: { key: { type: 'string' } }, required: ['key'], additionalProperties: false },
};
const desk = (approval) => ({ type: 'mcp', server_label: 'test', server_url: MCP_URL, require_approval: approval });
const kinds = (response) => response.output.map((item) => item.type);
const all = async (stream, into = []) => {
  for await (const event of stream) into.push(event);
  return into;
};
const told = (events) =>
  events.filter((event) => event.type === 'response.output_text.delta').map((event) => event.delta).join('');
const numbered = (events) => assert.deepEqual(events.map((event) => event.sequence_number), [...events.keys()]);
const ended = async (id) => {
  for (;;) {
    const found = await responses.retrieve(id);
    if (!['queued', 'in_progress'].includes(found.status)) return found;
    await new Promise((go) => setTimeout(go, 50));
  }
};

const checks = {
  async text() {
    const made = await responses.create({ model: MODEL, input: 'hello', instructions: 'be brief' });
    assert.deepEqual([made.status, made.output_text], ['completed', GREETING]);
    assert.equal(made.usage.total_tokens, made.usage.input_tokens + made.usage.output_tokens);
    assert.deepEqual((await responses.retrieve(made.id)).output, made.output);
  },
  async stream() {
    const events = await all(await responses.create({ model: MODEL, input: 'hello', stream: true }));
    numbered(events);
    assert.deepEqual([events[0].type, events.at(-1).type], ['response.created', 'response.completed']);
    assert.equal(told(events), GREETING);
    assert.equal(events.at(-1).response.output[0].content[0].text, GREETING);
  },
  async stream_helper() {
    const stream = responses.stream({ model: MODEL, input: 'hello' });
    let text = '';
    stream.on('response.output_text.delta', (event) => (text += event.delta));
    assert.equal((await stream.finalResponse()).output_text, GREETING);
    assert.equal(text, GREETING);
  },
  async tool_with_the_whole_history() {
    const input = [{ role: 'user', content: use('lookup', { key: 'k1' }) }];
    const asked = { model: MODEL, tools: [lookup], store: false, include: ['reasoning.encrypted_content'] };
    const called = await responses.create({ ...asked, input });
    const call = called.output.at(-1);
    assert.deepEqual(JSON.parse(call.arguments), { key: 'k1' });
    input.push(...called.output, { type: 'function_call_output', call_id: call.call_id, output: 'value-1' });
    assert.equal((await responses.create({ ...asked, input })).output_text, 'The tool says: value-1');
  },
  async tool_on_the_chain_through_the_helper() {
    const asked = { model: MODEL, tools: [lookup] };
    const called = await responses.stream({ ...asked, input: use('lookup', { key: 'k2' }) }).finalResponse();
    const call = called.output.at(-1);
    const input = [{ type: 'function_call_output', call_id: call.call_id, output: 'value-2' }];
    const answered = await responses.stream({ ...asked, input, previous_response_id: called.id }).finalResponse();
    assert.equal(answered.output_text, 'The tool says: value-2');
  },
  async mcp_without_a_question() {
    const made = await responses.create({ model: MODEL, input: use('echo', { text: 'node' }), tools: [desk('never')] });
    assert.deepEqual(kinds(made), ['mcp_list_tools', 'mcp_call', 'message']);
    assert.deepEqual([made.output[1].output, made.output_text], ['echo node', 'The tool says: echo node']);
  },
  async mcp_asked_and_approved() {
    const tools = [desk('always')];
    const asked = await responses.create({ model: MODEL, input: use('echo', { text: 'asked' }), tools });
    assert.deepEqual(kinds(asked), ['mcp_list_tools', 'mcp_approval_request']);
    const input = [{ type: 'mcp_approval_response', approval_request_id: asked.output[1].id, approve: true }];
    const answer = { model: MODEL, input, tools, previous_response_id: asked.id };
    const events = await all(await responses.create({ ...answer, stream: true }));
    assert.deepEqual(kinds(events.at(-1).response), ['mcp_call', 'message']);
    assert.ok(events.some((event) => event.type === 'response.mcp_call.completed'));
  },
  async structured_output() {
    const Person = z.object({ name: z.string(), age: z.number() });
    const text = { format: zodTextFormat(Person, 'person') };
    const made = await responses.parse({ model: MODEL, input: 'answer with {"name": "Ada", "age": 36}', text });
    assert.deepEqual(made.output_parsed, { name: 'Ada', age: 36 });
  },
  async background_polled() {
    const made = await responses.create({ model: MODEL, input: 'hello', background: true });
    assert.ok(['queued', 'in_progress'].includes(made.status));
    assert.equal((await ended(made.id)).output_text, GREETING);
  },
  async background_cancelled() {
    const made = await responses.create({ model: MODEL, input: 'wait 100 s', background: true });
    assert.equal((await responses.cancel(made.id)).status, 'cancelled');
    assert.equal((await responses.retrieve(made.id)).status, 'cancelled');
  },
  async killed_in_mid_text_and_read_on() {
    const line = connect(LINE_URL);
    const asked = { model: MODEL, input: 'tell 400 words to node', stream: true };
    const events = [];
    await assert.rejects(async () => all(await line.responses.create(asked), events));
    assert.equal(events.at(-1).type, 'response.output_text.delta');
    const from = { stream: true, starting_after: events.at(-1).sequence_number };
    await all(await line.responses.retrieve(events[0].response.id, from), events);
    numbered(events);
    assert.ok(told(events).endsWith('word-400'));
  },
  async the_helper_reads_on() {
    const events = await all(await responses.create({ model: MODEL, input: 'tell 9 words', stream: true }));
    const stream = responses.stream({ response_id: events[0].response.id, starting_after: 6 });
    const rest = await all(stream);
    assert.deepEqual(rest.map((event) => event.sequence_number), events.slice(7).map((event) => event.sequence_number));
    assert.equal((await stream.finalResponse()).output_text, told(events));
  },
  async errors_by_status() {
    const refused = [
      [OpenAI.BadRequestError, { model: MODEL, input: 'x', temperature: 9 }],
      [OpenAI.BadRequestError, { model: MODEL, input: 'x', previous_response_id: 'resp_no' }],
      [OpenAI.NotFoundError, { model: 'unknown', input: 'x' }],
      [OpenAI.RateLimitError, { model: MODEL, input: 'fail with 429' }],
    ];
    for (const [kind, body] of refused) {
      const error = await responses.create(body).then(() => null, (thrown) => thrown);
      assert.ok(error instanceof kind, `${kind.name}: ${error}`);
      assert.ok(error.type && error.message && error.requestID, `${error.type} ${error.requestID}`);
    }
    await assert.rejects(responses.retrieve('resp_unknown'), OpenAI.NotFoundError);
  },
  async compaction() {
    const first = await responses.create({ model: MODEL, input: 'first words' });
    const window = await responses.compact({ model: MODEL, previous_response_id: first.id });
    assert.deepEqual(kinds(window), ['message', 'compaction']);
    const input = [...window.output, { role: 'user', content: 'second words' }];
    assert.equal((await responses.create({ model: MODEL, input })).output_text, GREETING);
  },
  async conversation() {
    const made = await client.conversations.create({});
    for (const input of ['one', 'two']) await responses.create({ model: MODEL, conversation: made.id, input });
    const roles = [];
    for await (const item of client.conversations.items.list(made.id, { order: 'asc', limit: 3 })) roles.push(item.role);
    assert.deepEqual(roles, ['user', 'assistant', 'user', 'assistant']);
    assert.ok((await client.conversations.delete(made.id)).deleted);
  },
};

for (const [name, check] of Object.entries(checks)) {
  const error = await check().then(() => null, (thrown) => String(thrown.stack ?? thrown));
  console.log(JSON.stringify({ name, error }));
}

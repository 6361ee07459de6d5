'use strict';
// RocketMQ's gRPC client for Node (npm rocketmq-client-nodejs), driven by lines on stdin; one JSON line on stdout for
// each. Arguments: endpoints, access key and secret key (both may be missing).

const readline = require('node:readline');
const { Producer, SimpleConsumer, PushConsumer, FilterExpression, ConsumeResult } = require('rocketmq-client-nodejs');

const COMMIT = 1;
const ROLLBACK = 2;
const SQL = 2;
const [ endpoints, accessKey, accessSecret ] = process.argv.slice(2);
const members = new Map();
const inboxes = new Map();
const received = new Map();

const quiet = { debug() {}, info() {}, warn: (...text) => console.error(...text), error: (...text) => console.error(...text), close() {} };

function common(fields) {
  const options = { endpoints, namespace: fields.namespace || '', sslEnabled: fields.tls === 'true', logger: quiet };
  return accessKey ? { ...options, sessionCredentials: { accessKey, accessSecret } } : options;
}

function message(fields, body) {
  const made = { topic: fields.topic, body, properties: new Map() };
  if (fields.tag) made.tag = fields.tag;
  if (fields.keys) made.keys = fields.keys.split(' ');
  if (fields.group) made.messageGroup = fields.group;
  if (fields.delayMs) made.delay = Number(fields.delayMs);
  for (const [ name, value ] of Object.entries(fields)) {
    if (name.startsWith('property.')) made.properties.set(name.slice('property.'.length), value);
  }
  return made;
}

function row(view) {
  return {
    body: view.body.toString('hex'),
    topic: view.topic,
    id: view.messageId,
    tag: view.tag || '',
    keys: (view.keys || []).join(' '),
    group: view.messageGroup || '',
    properties: Object.fromEntries(view.properties),
    attempt: view.deliveryAttempt,
    corrupted: view.corrupted,
  };
}

function subscriptions(fields) {
  const expression = fields.sql ? new FilterExpression(fields.sql, SQL) : new FilterExpression(fields.expression || '*');
  return new Map([[ fields.topic, expression ]]);
}

const verbs = {
  async producer(fields) {
    const asked = [];
    const checker = fields.checker && {
      async check(view) {
        asked.push(view.body.toString('hex'));
        return fields.checker === 'commit' ? COMMIT : ROLLBACK;
      },
    };
    const made = new Producer({ ...common(fields), topics: fields.topics.split(','), topic: fields.topics.split(','), checker });
    await made.startup();
    members.set(fields.name, made);
    inboxes.set(fields.name, asked);
    return {};
  },
  async send(fields) {
    const by = members.get(fields.name);
    const made = fields.bodies.split(',').map(text => message(fields, Buffer.from(text, 'hex')));
    const sent = [];
    if (fields.mode === 'async') {
      sent.push(...await Promise.all(made.map(each => by.send(each))));
    } else {
      for (const each of made) sent.push(await by.send(each));
    }
    return { sent: sent.map(each => ({ id: each.messageId, recall: each.recallHandle || '' })) };
  },
  async transaction(fields) {
    const by = members.get(fields.name);
    const begun = by.beginTransaction();
    const receipt = await by.send(message(fields, Buffer.from(fields.body, 'hex')), begun);
    if (fields.end === 'commit') await begun.commit();
    if (fields.end === 'rollback') await begun.rollback();
    return { id: receipt.messageId };
  },
  async asked(fields) {
    return { asked: inboxes.get(fields.name) };
  },
  async recall(fields) {
    return { id: (await members.get(fields.name).recallMessage(fields.topic, fields.handle)).messageId };
  },
  async push(fields) {
    const rows = [];
    const tries = new Map();
    const pause = 1000 * Number(fields.pauseS || 0);
    const made = new PushConsumer({
      ...common(fields), consumerGroup: fields.group, subscriptions: subscriptions(fields),
      messageListener: {
        async consume(view) {
          if (pause) await new Promise(done => setTimeout(done, pause));
          rows.push(row(view));
          const count = (tries.get(view.messageId) || 0) + 1;
          tries.set(view.messageId, count);
          return count <= Number(fields.later || 0) ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
        },
      },
    });
    await made.startup();
    members.set(fields.name, made);
    inboxes.set(fields.name, rows);
    return {};
  },
  async await(fields) {
    const end = Date.now() + Number(fields.timeoutMs);
    const rows = inboxes.get(fields.name);
    while (rows.length < Number(fields.count) && Date.now() < end) await new Promise(done => setTimeout(done, 20));
    return { messages: rows };
  },
  async simple(fields) {
    const made = new SimpleConsumer({
      ...common(fields), consumerGroup: fields.group, subscriptions: subscriptions(fields),
      awaitDuration: 1000 * Number(fields.waitS || 5),
    });
    await made.startup();
    members.set(fields.name, made);
    received.set(fields.name, []);
    return {};
  },
  async receive(fields) {
    const found = await members.get(fields.name).receive(Number(fields.count), Number(fields.invisibleMs));
    const kept = received.get(fields.name);
    const messages = found.map((view, at) => ({ ...row(view), at: kept.length + at }));
    kept.push(...found);
    return { messages };
  },
  async ack(fields) {
    await members.get(fields.name).ack(received.get(fields.name)[Number(fields.at)]);
    return {};
  },
  async change(fields) {
    const view = received.get(fields.name)[Number(fields.at)];
    await members.get(fields.name).changeInvisibleDuration(view, Number(fields.invisibleMs));
    return {};
  },
  async shutdown(fields) {
    const made = members.get(fields.name);
    members.delete(fields.name);
    if (made) await made.shutdown();
    return {};
  },
};

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [ verb, ...words ] = line.split(' ');
    const fields = {};
    for (const word of words) {
      const at = word.indexOf('=');
      fields[decodeURIComponent(word.slice(0, at))] = decodeURIComponent(word.slice(at + 1));
    }
    let answer;
    try {
      if (!verbs[verb]) throw new Error(`no verb ${verb}`);
      answer = await verbs[verb](fields);
    } catch (error) {
      console.error(error);
      answer = { failed: String(error) };
    }
    process.stdout.write(JSON.stringify(answer) + '\n');
  }
  process.exit(0);
}

process.on('uncaughtException', error => console.error('uncaught', error));
process.on('unhandledRejection', error => console.error('unhandled', error));
main();

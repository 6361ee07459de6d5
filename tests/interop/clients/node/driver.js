'use strict';
// ali-ons, driven by lines on stdin; one JSON line on stdout for each. Arguments: name server.
const readline = require('readline');
const httpclient = require('urllib');
const { Consumer, Producer, Message } = require('ali-ons');

const nameSrv = process.argv[2];
const silent = { info() {}, debug() {}, warn: (...all) => console.error(...all), error: (...all) => console.error(...all) };
const members = new Map();
const inboxes = new Map();
let opened = 0;

const common = () => ({ httpclient, nameSrv, logger: silent, rebalanceInterval: 1000, instanceName: `driver-${process.pid}-${++opened}` });
const bodies = fields => fields.bodies.split(',').map(text => Buffer.from(text, 'hex'));

function message(fields, body) {
  const made = new Message(fields.topic, fields.tags || '', body);
  if (fields.keys) made.keys = fields.keys.split(' ');
  if (fields.delayLevel) made.delayTimeLevel = Number(fields.delayLevel);
  for (const name of Object.keys(fields)) {
    if (name.startsWith('property.')) made.properties[name.slice(9)] = fields[name];
  }
  return made;
}

function row(msg) {
  return { body: Buffer.from(msg.body).toString('hex'), tags: msg.tags, keys: msg.keys, properties: msg.properties,
    tries: msg.reconsumeTimes, queue: msg.queueId, offset: Number(msg.queueOffset) };
}

const receipt = sent => ({ id: sent.msgId, status: sent.sendStatus, queue: sent.messageQueue.queueId, offset: Number(sent.queueOffset) });

const verbs = {
  async producer(fields) {
    const made = new Producer({ ...common(), producerGroup: fields.group });
    made.on('error', error => console.error(error));
    await made.ready();
    members.set(fields.name, made);
    return {};
  },
  async send(fields) {
    const by = members.get(fields.name);
    const messages = bodies(fields).map(body => message(fields, body));
    const sent = [];
    if (fields.mode === 'async') {
      sent.push(...(await Promise.all(messages.map(each => by.send(each)))).map(receipt));
    } else {
      for (const each of messages) sent.push(receipt(await by.send(each)));
    }
    return { sent };
  },
  async push(fields) {
    const made = new Consumer({ ...common(), consumerGroup: fields.group, isBroadcast: !!fields.broadcast,
      consumeFromWhere: 'CONSUME_FROM_FIRST_OFFSET' });
    const rows = [];
    const tries = new Map();
    made.on('error', error => console.error(error));
    const expression = fields.sql ? { expressionType: 'SQL92', subString: fields.sql } : fields.expression;
    made.subscribe(fields.topic, expression, async msg => {
      const found = row(msg);
      rows.push(found);
      const count = (tries.get(found.body) || 0) + 1;
      tries.set(found.body, count);
      return count <= Number(fields.later || 0) ? Consumer.ACTION_RETRY : undefined;
    });
    await made.ready();
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
  async shutdown(fields) {
    const made = members.get(fields.name);
    members.delete(fields.name);
    if (made) await made.close();
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
      answer = { failed: String(error) };
    }
    process.stdout.write(JSON.stringify(answer) + '\n');
  }
  process.exit(0);
}

process.on('uncaughtException', error => console.error('uncaught', error));
process.on('unhandledRejection', error => console.error('unhandled', error));
main();

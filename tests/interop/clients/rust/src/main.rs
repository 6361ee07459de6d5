//! RocketMQ's Rust client, driven by lines on stdin; one JSON line on stdout for each. Argument: name server.
#![recursion_limit = "512"]

use std::any::Any;
use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rocketmq_client_rust::*;
use rocketmq_model::common::consumer::consume_from_where::ConsumeFromWhere;
use rocketmq_model::common::message::message_ext::MessageExt;
use rocketmq_model::common::message::message_single::Message;
use rocketmq_model::common::message::MessageTrait;
use rocketmq_protocol::protocol::heartbeat::message_model::MessageModel;
use rocketmq_runtime::{RuntimeConfig, RuntimeOwner};
use serde_json::{json, Value};

type Fields = HashMap<String, String>;
type Answer = Result<Value, Box<dyn std::error::Error + Send + Sync>>;

#[derive(Default)]
struct Inbox {
    rows: Vec<Value>,
    tries: HashMap<String, i64>,
}

#[derive(Clone, Default)]
struct Listener {
    inbox: Arc<Mutex<Inbox>>,
    later: i64,
}

impl Listener {
    /// Keeps the messages; returns whether they have to come again.
    fn take(&self, messages: &[&MessageExt]) -> bool {
        let mut inbox = self.inbox.lock().unwrap();
        let mut again = false;
        for message in messages {
            let found = row(message);
            let body = found["body"].as_str().unwrap().to_string();
            inbox.rows.push(found);
            let tries = inbox.tries.entry(body).or_insert(0);
            *tries += 1;
            again |= *tries <= self.later;
        }
        again
    }
}

impl MessageListenerConcurrently for Listener {
    fn consume_message(
        &self,
        messages: &[&MessageExt],
        _context: &ConsumeConcurrentlyContext,
    ) -> ClientResult<ConsumeConcurrentlyStatus> {
        Ok(if self.take(messages) {
            ConsumeConcurrentlyStatus::ReconsumeLater
        } else {
            ConsumeConcurrentlyStatus::ConsumeSuccess
        })
    }
}

impl MessageListenerOrderly for Listener {
    fn consume_message(
        &self,
        messages: &[&MessageExt],
        context: &mut ConsumeOrderlyContext,
    ) -> ClientResult<ConsumeOrderlyStatus> {
        context.set_auto_commit(true);
        Ok(if self.take(messages) {
            ConsumeOrderlyStatus::SuspendCurrentQueueAMoment
        } else {
            ConsumeOrderlyStatus::Success
        })
    }
}

#[derive(Clone, Default)]
struct Decider(Arc<Mutex<HashMap<String, (String, String)>>>);

fn state(name: &str) -> LocalTransactionState {
    match name {
        "COMMIT" => LocalTransactionState::CommitMessage,
        "ROLLBACK" => LocalTransactionState::RollbackMessage,
        _ => LocalTransactionState::Unknown,
    }
}

impl TransactionListener for Decider {
    fn execute_local_transaction(
        &self,
        message: &dyn MessageTrait,
        _argument: Option<&(dyn Any + Send + Sync)>,
    ) -> LocalTransactionState {
        let body = hex(message.get_body().map(|body| body.as_ref()).unwrap_or_default());
        self.0.lock().unwrap().get(&body).map_or(LocalTransactionState::Unknown, |found| state(&found.0))
    }

    fn check_local_transaction(&self, message: &MessageExt) -> LocalTransactionState {
        let body = hex(&message.body().unwrap_or_default());
        self.0.lock().unwrap().get(&body).map_or(LocalTransactionState::Unknown, |found| state(&found.1))
    }
}

struct Driver {
    namesrv: String,
    runtime: Arc<ClientRuntime>,
    producers: HashMap<String, DefaultMQProducer>,
    transactions: HashMap<String, (TransactionMQProducer, Decider)>,
    consumers: HashMap<String, DefaultMQPushConsumer>,
    inboxes: HashMap<String, Arc<Mutex<Inbox>>>,
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len() / 2).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap()).collect()
}

fn decoded(text: &str) -> String {
    let (mut out, bytes, mut at) = (Vec::new(), text.as_bytes(), 0);
    while at < bytes.len() {
        if bytes[at] == b'%' {
            out.push(u8::from_str_radix(&text[at + 1..at + 3], 16).unwrap());
            at += 3;
        } else {
            out.push(bytes[at]);
            at += 1;
        }
    }
    String::from_utf8(out).unwrap()
}

fn row(message: &MessageExt) -> Value {
    let properties: HashMap<String, String> =
        message.properties().iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    json!({"body": hex(&message.body().unwrap_or_default()),
           "tags": properties.get("TAGS"), "keys": properties.get("KEYS"),
           "tries": message.reconsume_times(), "queue": message.queue_id(), "offset": message.queue_offset(),
           "properties": properties})
}

fn receipt(sent: &SendResult) -> Value {
    json!({"id": sent.msg_id.as_ref().map(|id| id.to_string()), "offset": sent.queue_offset,
           "queue": sent.message_queue.as_ref().map(|queue| queue.queue_id()),
           "status": format!("{:?}", sent.send_status)})
}

fn message(fields: &Fields, body: &str) -> Result<Message, Box<dyn std::error::Error + Send + Sync>> {
    let mut made = Message::builder().topic(fields["topic"].clone()).body(unhex(body));
    if let Some(tags) = fields.get("tags") {
        made = made.tags(tags.clone());
    }
    if let Some(keys) = fields.get("keys") {
        made = made.keys(keys.split(' ').map(String::from).collect());
    }
    if let Some(level) = fields.get("delayLevel") {
        made = made.delay_level(level.parse()?);
    }
    for (name, value) in fields {
        if let Some(name) = name.strip_prefix("property.") {
            made = made.raw_property(name.to_string(), value.clone()).map_err(|error| error.to_string())?;
        }
    }
    Ok(made.build().map_err(|error| error.to_string())?)
}

fn bodies(fields: &Fields) -> Vec<&str> {
    fields["bodies"].split(',').collect()
}

impl Driver {
    fn config(&self, fields: &Fields) -> ClientConfig {
        let mut config = ClientConfig::default();
        config.set_instance_name(fields["name"].clone().into());
        config.set_namesrv_addr(self.namesrv.clone().into());
        config
    }

    async fn answer(&mut self, verb: &str, fields: &Fields) -> Answer {
        match verb {
            "producer" => self.producer(fields).await,
            "send" => self.send(fields).await,
            "batch" => self.batch(fields).await,
            "transaction" => self.transaction(fields).await,
            "push" => self.push(fields).await,
            "await" => self.wait(fields).await,
            "pull" => self.pull(fields).await,
            "shutdown" => self.shutdown(fields).await,
            _ => Err(format!("no verb {verb}").into()),
        }
    }

    async fn producer(&mut self, fields: &Fields) -> Answer {
        let name = fields["name"].clone();
        if fields.contains_key("transaction") {
            let decider = Decider::default();
            let mut producer = TransactionMQProducer::builder(self.runtime.clone())
                .client_config(self.config(fields))
                .producer_group(fields["group"].clone())
                .name_server_addr(self.namesrv.clone())
                .transaction_listener(decider.clone())
                .build();
            producer.start().await?;
            self.transactions.insert(name, (producer, decider));
        } else {
            let mut producer = DefaultMQProducer::builder(self.runtime.clone())
                .client_config(self.config(fields))
                .producer_group(fields["group"].clone())
                .name_server_addr(self.namesrv.clone())
                .build();
            producer.start().await?;
            self.producers.insert(name, producer);
        }
        Ok(json!({}))
    }

    async fn send(&mut self, fields: &Fields) -> Answer {
        let producer = self.producers.get(&fields["name"]).ok_or("no such producer")?;
        let mut sent = Vec::new();
        let (answers, mut answered) = tokio::sync::mpsc::unbounded_channel();
        let mode = fields.get("mode").map(String::as_str).unwrap_or("sync");
        for body in bodies(fields) {
            let message = message(fields, body)?;
            if mode == "oneway" {
                producer.send_oneway(message).await?;
            } else if mode == "async" {
                let answers = answers.clone();
                producer
                    .send_with_callback(message, move |result: Option<&SendResult>, error: Option<&ClientError>| {
                        let _ = answers.send(match (result, error) {
                            (Some(result), _) => Ok(receipt(result)),
                            (_, error) => Err(format!("{error:?}")),
                        });
                    })
                    .await?;
            } else if let Some(shard) = fields.get("shard") {
                let selector = SelectMessageQueueByHash;
                let found = producer
                    .send_with_selector(message, |queues, each, key| selector.select(queues, each, key), shard.clone())
                    .await?;
                sent.extend(found.as_ref().map(receipt));
            } else {
                sent.extend(producer.send_with_timeout(message, 10_000).await?.as_ref().map(receipt));
            }
        }
        while mode == "async" && sent.len() < bodies(fields).len() {
            let found = tokio::time::timeout(Duration::from_secs(20), answered.recv()).await?;
            sent.push(found.ok_or("no callback")??);
        }
        Ok(json!({"sent": sent}))
    }

    async fn batch(&mut self, fields: &Fields) -> Answer {
        let producer = self.producers.get(&fields["name"]).ok_or("no such producer")?;
        let messages: Result<Vec<_>, _> = bodies(fields).into_iter().map(|body| message(fields, body)).collect();
        Ok(json!({"sent": [receipt(&producer.send_batch(messages?).await?)]}))
    }

    async fn transaction(&mut self, fields: &Fields) -> Answer {
        let (producer, decider) = self.transactions.get(&fields["name"]).ok_or("no such producer")?;
        let body = fields["bodies"].clone();
        let checked = fields.get("checked").cloned().unwrap_or_default();
        decider.0.lock().unwrap().insert(body.clone(), (fields["decision"].clone(), checked));
        producer.send_message_in_transaction::<(), _>(message(fields, &body)?, None).await?;
        Ok(json!({"sent": [{}]}))
    }

    async fn push(&mut self, fields: &Fields) -> Answer {
        let model = if fields.contains_key("broadcast") { MessageModel::Broadcasting } else { MessageModel::Clustering };
        let mut builder = DefaultMQPushConsumer::builder(self.runtime.clone())
            .client_config(self.config(fields))
            .consumer_group(fields["group"].clone())
            .name_server_addr(self.namesrv.clone())
            .consume_from_where(ConsumeFromWhere::ConsumeFromFirstOffset)
            .message_model(model);
        if let Some(most) = fields.get("maxRetries") {
            builder = builder.max_reconsume_times(most.parse()?);
        }
        let mut consumer = builder.build();
        let topic = fields["topic"].clone();
        match fields.get("sql") {
            Some(sql) => consumer.subscribe_with_selector(&topic, Some(MessageSelector::by_sql(sql.clone()))).await?,
            None => consumer.subscribe(topic, fields["expression"].clone()).await?,
        }
        let later = fields.get("later").map_or(Ok(0), |text| text.parse())?;
        let listener = Listener { later, ..Default::default() };
        self.inboxes.insert(fields["name"].clone(), listener.inbox.clone());
        if fields.contains_key("orderly") {
            consumer.register_message_listener_orderly(listener);
        } else {
            consumer.register_message_listener_concurrently(listener);
        }
        consumer.start().await?;
        self.consumers.insert(fields["name"].clone(), consumer);
        Ok(json!({}))
    }

    async fn wait(&mut self, fields: &Fields) -> Answer {
        let (count, timeout): (usize, u64) = (fields["count"].parse()?, fields["timeoutMs"].parse()?);
        let (inbox, end) = (&self.inboxes[&fields["name"]], Instant::now() + Duration::from_millis(timeout));
        loop {
            let rows = inbox.lock().unwrap().rows.clone();
            if rows.len() >= count || Instant::now() > end {
                return Ok(json!({"messages": rows}));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn pull(&mut self, fields: &Fields) -> Answer {
        let consumer = DefaultLitePullConsumer::builder(self.runtime.clone())
            .instance_name(fields["name"].clone())
            .consumer_group(fields["group"].clone())
            .name_server_addr(self.namesrv.clone())
            .consume_from_where(ConsumeFromWhere::ConsumeFromFirstOffset)
            .build()?;
        consumer.subscribe_with_expression(&fields["topic"], &fields["expression"]).await?;
        consumer.start().await?;
        let (count, end) = (fields["count"].parse()?, Instant::now() + Duration::from_secs(40));
        let mut rows = Vec::new();
        while rows.len() < count && Instant::now() < end {
            rows.extend(consumer.poll_with_timeout(1000).await.iter().map(row));
        }
        consumer.shutdown().await;
        Ok(json!({"messages": rows}))
    }

    async fn shutdown(&mut self, fields: &Fields) -> Answer {
        let name = &fields["name"];
        if let Some(mut producer) = self.producers.remove(name) {
            producer.shutdown().await;
        }
        if let Some((mut producer, _)) = self.transactions.remove(name) {
            producer.shutdown().await;
        }
        if let Some(mut consumer) = self.consumers.remove(name) {
            consumer.shutdown().await;
        }
        Ok(json!({}))
    }
}

fn main() {
    let owner = RuntimeOwner::plan(RuntimeConfig::default()).expect("plan").build().expect("runtime");
    let telemetry = rocketmq_observability::TelemetryRuntimeGuard::noop();
    let runtime = ClientRuntime::try_new(
        owner.root_context().component("driver"),
        ClientRuntimeConfig::default(),
        telemetry.handle(),
    )
    .expect("client runtime");
    let mut driver = Driver {
        namesrv: std::env::args().nth(1).expect("name server"),
        runtime,
        producers: HashMap::new(),
        transactions: HashMap::new(),
        consumers: HashMap::new(),
        inboxes: HashMap::new(),
    };
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("stdin");
        let mut words = line.split(' ');
        let verb = words.next().unwrap_or_default().to_string();
        let fields: Fields =
            words.filter_map(|word| word.split_once('=')).map(|(name, value)| (decoded(name), decoded(value))).collect();
        let answer = owner.block_on(driver.answer(&verb, &fields));
        let text = answer.unwrap_or_else(|error| json!({"failed": error.to_string()}));
        println!("{text}");
        std::io::stdout().flush().expect("stdout");
    }
    std::process::exit(0);
}

// RocketMQ's Go client, driven by lines on stdin; one JSON line on stdout for each. Argument: name server.
package main

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

type fields map[string]string
type row map[string]interface{}

var (
	resolver  primitive.NsResolver
	producers = map[string]rocketmq.Producer{}
	deciders  = map[string]*decider{}
	txs       = map[string]rocketmq.TransactionProducer{}
	pushers   = map[string]rocketmq.PushConsumer{}
	inboxes   = map[string]*inbox{}
)

type inbox struct {
	sync.Mutex
	rows  []row
	tries map[string]int
}

type decider struct {
	sync.Mutex
	now, checked map[string]primitive.LocalTransactionState
}

func (d *decider) ExecuteLocalTransaction(m *primitive.Message) primitive.LocalTransactionState {
	d.Lock()
	defer d.Unlock()
	return d.now[string(m.Body)]
}

func (d *decider) CheckLocalTransaction(m *primitive.MessageExt) primitive.LocalTransactionState {
	d.Lock()
	defer d.Unlock()
	return d.checked[string(m.Body)]
}

func state(name string) primitive.LocalTransactionState {
	switch name {
	case "COMMIT":
		return primitive.CommitMessageState
	case "ROLLBACK":
		return primitive.RollbackMessageState
	}
	return primitive.UnknowState
}

func messageRow(m *primitive.MessageExt) row {
	return row{"body": hex.EncodeToString(m.Body), "tags": m.GetTags(), "keys": m.GetKeys(),
		"properties": m.GetProperties(), "tries": m.ReconsumeTimes, "queue": m.Queue.QueueId, "offset": m.QueueOffset}
}

func bodies(f fields) [][]byte {
	var all [][]byte
	for _, text := range strings.Split(f["bodies"], ",") {
		body, _ := hex.DecodeString(text)
		all = append(all, body)
	}
	return all
}

func message(f fields, body []byte) *primitive.Message {
	m := primitive.NewMessage(f["topic"], body)
	if f["tags"] != "" {
		m.WithTag(f["tags"])
	}
	if f["keys"] != "" {
		m.WithKeys(strings.Split(f["keys"], " "))
	}
	if f["shard"] != "" {
		m.WithShardingKey(f["shard"])
	}
	if level, err := strconv.Atoi(f["delayLevel"]); err == nil {
		m.WithDelayTimeLevel(level)
	}
	if queue, err := strconv.Atoi(f["queue"]); err == nil {
		m.Queue = &primitive.MessageQueue{Topic: f["topic"], BrokerName: f["broker"], QueueId: queue}
	}
	for name, value := range f {
		if strings.HasPrefix(name, "property.") {
			m.WithProperty(strings.TrimPrefix(name, "property."), value)
		}
	}
	return m
}

func receipt(r *primitive.SendResult) row {
	return row{"id": r.MsgID, "queue": r.MessageQueue.QueueId, "offset": r.QueueOffset, "status": int(r.Status)}
}

func startProducer(f fields) (interface{}, error) {
	options := []producer.Option{producer.WithNsResolver(resolver), producer.WithGroupName(f["group"]),
		producer.WithInstanceName(f["name"]), producer.WithRetry(2), producer.WithSendMsgTimeout(10 * time.Second)}
	switch f["selector"] {
	case "manual":
		options = append(options, producer.WithQueueSelector(producer.NewManualQueueSelector()))
	case "hash":
		options = append(options, producer.WithQueueSelector(producer.NewHashQueueSelector()))
	}
	if f["transaction"] != "" {
		d := &decider{now: map[string]primitive.LocalTransactionState{}, checked: map[string]primitive.LocalTransactionState{}}
		p, err := rocketmq.NewTransactionProducer(d, options...)
		if err != nil {
			return nil, err
		}
		deciders[f["name"]], txs[f["name"]] = d, p
		return row{}, p.Start()
	}
	p, err := rocketmq.NewProducer(options...)
	if err != nil {
		return nil, err
	}
	producers[f["name"]] = p
	return row{}, p.Start()
}

func send(f fields) (interface{}, error) {
	p, ctx := producers[f["name"]], context.Background()
	sent := []row{}
	var lock sync.Mutex
	var waits sync.WaitGroup
	var failed error
	for _, body := range bodies(f) {
		m := message(f, body)
		switch f["mode"] {
		case "oneway":
			if err := p.SendOneWay(ctx, m); err != nil {
				return nil, err
			}
		case "async":
			waits.Add(1)
			err := p.SendAsync(ctx, func(_ context.Context, r *primitive.SendResult, err error) {
				lock.Lock()
				defer lock.Unlock()
				if err != nil {
					failed = err
				} else {
					sent = append(sent, receipt(r))
				}
				waits.Done()
			}, m)
			if err != nil {
				return nil, err
			}
		default:
			r, err := p.SendSync(ctx, m)
			if err != nil {
				return nil, err
			}
			sent = append(sent, receipt(r))
		}
	}
	waits.Wait()
	return row{"sent": sent}, failed
}

func batch(f fields) (interface{}, error) {
	var all []*primitive.Message
	for _, body := range bodies(f) {
		all = append(all, message(f, body))
	}
	r, err := producers[f["name"]].SendSync(context.Background(), all...)
	if err != nil {
		return nil, err
	}
	return row{"sent": []row{receipt(r)}}, nil
}

func transaction(f fields) (interface{}, error) {
	body := bodies(f)[0]
	d := deciders[f["name"]]
	d.Lock()
	d.now[string(body)], d.checked[string(body)] = state(f["decision"]), state(f["checked"])
	d.Unlock()
	r, err := txs[f["name"]].SendMessageInTransaction(context.Background(), message(f, body))
	if err != nil {
		return nil, err
	}
	return row{"sent": []row{receipt(r.SendResult)}}, nil
}

func selector(f fields) consumer.MessageSelector {
	if f["sql"] != "" {
		return consumer.MessageSelector{Type: consumer.SQL92, Expression: f["sql"]}
	}
	return consumer.MessageSelector{Type: consumer.TAG, Expression: f["expression"]}
}

func push(f fields) (interface{}, error) {
	later, _ := strconv.Atoi(f["later"])
	options := []consumer.Option{consumer.WithNsResolver(resolver), consumer.WithGroupName(f["group"]),
		consumer.WithInstance(f["name"]), consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithConsumeMessageBatchMaxSize(1)}
	if f["broadcast"] != "" {
		options = append(options, consumer.WithConsumerModel(consumer.BroadCasting))
	}
	if f["orderly"] != "" {
		options = append(options, consumer.WithConsumerOrder(true))
	}
	if n, err := strconv.Atoi(f["maxRetries"]); err == nil {
		options = append(options, consumer.WithMaxReconsumeTimes(int32(n)))
	}
	c, err := rocketmq.NewPushConsumer(options...)
	if err != nil {
		return nil, err
	}
	box := &inbox{tries: map[string]int{}}
	err = c.Subscribe(f["topic"], selector(f), func(_ context.Context, all ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		box.Lock()
		defer box.Unlock()
		for _, m := range all {
			box.rows = append(box.rows, messageRow(m))
			box.tries[string(m.Body)]++
			if box.tries[string(m.Body)] <= later {
				if f["orderly"] != "" {
					return consumer.SuspendCurrentQueueAMoment, nil
				}
				return consumer.ConsumeRetryLater, nil
			}
			if name := f["replyWith"]; name != "" {
				body := append([]byte("re:"), m.Body...)
				reply, err := consumer.CreateReplyMessage(m, body)
				if err == nil {
					reply.Body = body // CreateReplyMessage reads it as properties and leaves it out
					_, err = producers[name].SendSync(context.Background(), reply)
				}
				if err != nil {
					fmt.Fprintln(os.Stderr, "reply:", err)
				}
			}
		}
		return consumer.ConsumeSuccess, nil
	})
	if err != nil {
		return nil, err
	}
	pushers[f["name"]], inboxes[f["name"]] = c, box
	return row{}, c.Start()
}

func await(f fields) (interface{}, error) {
	count, _ := strconv.Atoi(f["count"])
	timeout, _ := strconv.Atoi(f["timeoutMs"])
	box, end := inboxes[f["name"]], time.Now().Add(time.Duration(timeout)*time.Millisecond)
	for {
		box.Lock()
		rows := append([]row{}, box.rows...)
		box.Unlock()
		if len(rows) >= count || time.Now().After(end) {
			return row{"messages": rows}, nil
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func pull(f fields) (interface{}, error) {
	c, err := rocketmq.NewPullConsumer(consumer.WithGroupName(f["group"]), consumer.WithNsResolver(resolver),
		consumer.WithInstance(f["name"]), consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	if err != nil {
		return nil, err
	}
	if err = c.Subscribe(f["topic"], selector(f)); err != nil {
		return nil, err
	}
	if err = c.Start(); err != nil {
		return nil, err
	}
	defer c.Shutdown()
	rows := []row{}
	count, _ := strconv.Atoi(f["count"])
	for end := time.Now().Add(20 * time.Second); len(rows) < count && time.Now().Before(end); {
		request, err := c.Poll(context.Background(), time.Second)
		if err != nil {
			continue
		}
		for _, m := range request.GetMsgList() {
			rows = append(rows, messageRow(m))
		}
		c.ACK(context.Background(), request, consumer.ConsumeSuccess)
	}
	return row{"messages": rows}, nil
}

func request(f fields) (interface{}, error) {
	reply, err := producers[f["name"]].Request(context.Background(), 10*time.Second, message(f, bodies(f)[0]))
	if err != nil {
		return nil, err
	}
	return row{"reply": hex.EncodeToString(reply.Body)}, nil
}

func shutdown(f fields) (interface{}, error) {
	name := f["name"]
	if p, ok := producers[name]; ok {
		delete(producers, name)
		return row{}, p.Shutdown()
	}
	if p, ok := txs[name]; ok {
		delete(txs, name)
		return row{}, p.Shutdown()
	}
	if c, ok := pushers[name]; ok {
		delete(pushers, name)
		return row{}, c.Shutdown()
	}
	return row{}, nil
}

func main() {
	rlog.SetLogLevel("warn")
	rlog.SetOutputPath(os.Args[2])
	resolver = primitive.NewPassthroughResolver([]string{os.Args[1]})
	verbs := map[string]func(fields) (interface{}, error){"producer": startProducer, "send": send, "batch": batch,
		"transaction": transaction, "push": push, "await": await, "pull": pull, "request": request, "shutdown": shutdown}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		words, f := strings.Split(lines.Text(), " "), fields{}
		for _, word := range words[1:] {
			parts := strings.SplitN(word, "=", 2)
			name, _ := url.PathUnescape(parts[0])
			f[name], _ = url.PathUnescape(parts[1])
		}
		var answer interface{}
		verb, ok := verbs[words[0]]
		err := fmt.Errorf("no verb %s", words[0])
		if ok {
			answer, err = verb(f)
		}
		if err != nil {
			answer = row{"failed": err.Error()}
		}
		text, _ := json.Marshal(answer)
		fmt.Println(string(text))
	}
}

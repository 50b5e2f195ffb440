// Drives the real bbolt for tests/interop/test_bolt.py.
//
// bolt FILE reads one JSON operation per line, does them in as many transactions as there are
// "commit"s, and writes all the file holds and what bbolt's own Check has to say as JSON.
// bolt FILE hold keeps the file open until its input ends.
package main

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	bolt "go.etcd.io/bbolt"
)

type operation struct {
	Op       string
	Path     []string
	Key      string
	Value    string
	Sequence uint64
}

type bucket struct {
	Sequence uint64                 `json:"sequence"`
	Items    map[string]interface{} `json:"items"`
}

type report struct {
	Buckets map[string]interface{} `json:"buckets"`
	Check   []string               `json:"check"`
	Txid    int                    `json:"txid"`
	Size    int64                  `json:"size"`
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func unhex(text string) []byte {
	data, err := hex.DecodeString(text)
	must(err)
	return data
}

func apply(tx *bolt.Tx, op operation) {
	var at *bolt.Bucket
	for _, name := range op.Path {
		var err error
		if at == nil {
			at, err = tx.CreateBucketIfNotExists(unhex(name))
		} else {
			at, err = at.CreateBucketIfNotExists(unhex(name))
		}
		must(err)
	}
	switch op.Op {
	case "bucket":
	case "put":
		must(at.Put(unhex(op.Key), unhex(op.Value)))
	case "delete":
		must(at.Delete(unhex(op.Key)))
	case "sequence":
		must(at.SetSequence(op.Sequence))
	default:
		must(fmt.Errorf("unknown operation %q", op.Op))
	}
}

func dump(b *bolt.Bucket) bucket {
	found := bucket{b.Sequence(), map[string]interface{}{}}
	must(b.ForEach(func(key, value []byte) error {
		if value == nil {
			found.Items[hex.EncodeToString(key)] = dump(b.Bucket(key))
		} else {
			found.Items[hex.EncodeToString(key)] = hex.EncodeToString(value)
		}
		return nil
	}))
	return found
}

func show(db *bolt.DB) {
	found := report{Buckets: map[string]interface{}{}, Check: []string{}}
	must(db.View(func(tx *bolt.Tx) error {
		found.Txid, found.Size = tx.ID(), tx.Size()
		for err := range tx.Check() {
			found.Check = append(found.Check, err.Error())
		}
		return tx.ForEach(func(name []byte, b *bolt.Bucket) error {
			found.Buckets[hex.EncodeToString(name)] = dump(b)
			return nil
		})
	}))
	must(json.NewEncoder(os.Stdout).Encode(found))
}

func main() {
	db, err := bolt.Open(os.Args[1], 0600, &bolt.Options{Timeout: 200 * time.Millisecond})
	must(err)
	if len(os.Args) > 2 && os.Args[2] == "hold" {
		fmt.Println("held")
		_, err = io.Copy(io.Discard, os.Stdin)
		must(err)
		must(db.Close())
		return
	}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<28)
	var tx *bolt.Tx
	for lines.Scan() {
		var op operation
		must(json.Unmarshal(lines.Bytes(), &op))
		if tx == nil {
			tx, err = db.Begin(true)
			must(err)
		}
		if op.Op == "commit" {
			must(tx.Commit())
			tx = nil
		} else {
			apply(tx, op)
		}
	}
	must(lines.Err())
	show(db)
	must(db.Close())
}

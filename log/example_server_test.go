package log_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
)

// serve answers one request: 8 bytes offset in; 4 bytes length and that many bytes of whole batches out, by sendfile.
func serve(ctx context.Context, l *log.Log, conn net.Conn) error {
	var offset [8]byte
	if _, err := io.ReadFull(conn, offset[:]); err != nil {
		return err
	}
	f, err := l.Fetch(ctx, int64(binary.BigEndian.Uint64(offset[:])), log.FetchOptions{
		MinBytes: 1, MaxWait: 500 * time.Millisecond, WholeBatches: true,
	})
	if err != nil {
		return err
	}
	defer f.Close() // it pins a segment
	if err := conn.SetWriteDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	if _, err := conn.Write(binary.BigEndian.AppendUint32(nil, uint32(f.Len()))); err != nil {
		return err
	}
	_, err = f.WriteTo(conn)
	return err
}

// A server that sends whole batches behind their length, and a client that reads the records in them.
func ExampleFetched_WriteTo() {
	ctx := context.Background()
	l := memory(log.Config{})
	for _, v := range []string{"a", "b", "c"} {
		if _, err := l.Append(ctx, record.Record{Value: []byte(v)}); err != nil {
			panic(err)
		}
	}
	here, there := net.Pipe()
	go func() {
		defer there.Close()
		if err := serve(ctx, l, there); err != nil {
			panic(err)
		}
	}()
	if _, err := here.Write(binary.BigEndian.AppendUint64(nil, 1)); err != nil {
		panic(err)
	}
	answer, err := io.ReadAll(here)
	if err != nil {
		panic(err)
	}
	for rest := answer[4:]; len(rest) > 0; {
		var b record.Batch
		if b, rest, err = record.Next(rest); err != nil {
			panic(err)
		}
		for r, err := range b.Records(nil) {
			fmt.Println(r.Offset, string(r.Value), err)
		}
	}
	// Output:
	// 1 b <nil>
	// 2 c <nil>
}

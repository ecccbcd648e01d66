// Command replicated keeps one partition on three nodes, as a Kafka cluster does: it writes, kills the leader, shows the
// election, that nothing committed is lost, and that the old leader comes back and follows.
//
//	go run ./examples/replicated               three replicas in this process
//	go run ./examples/replicated -processes    three processes that speak TCP; the leader is killed with SIGKILL. This one is a client
//
// Each node is a member.Member: its replicas, its registration, and a controller that rules if it is elected. Where the cluster's
// metadata lives is a replica.Store. Here it is one in memory, of this process. With -processes the nodes reach it over net/rpc,
// so this one process is not replicated; a real cluster has a store that is.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/partlog/partlog/replica"
)

func main() {
	processes := flag.Bool("processes", false, "each node is a process of its own")
	dir := flag.String("dir", "", "where the logs are; empty: in a temporary folder that is removed. What an earlier run left there is set aside: its store is gone")
	node := flag.Int("node", 0, "be this node (for the program itself)")
	hub := flag.String("hub", "", "address of the store (for the program itself)")
	flag.Parse()
	if flag.NArg() > 0 || *node > 0 && *hub == "" {
		fmt.Fprintln(os.Stderr, "replicated takes flags only, and -node and -hub together or not at all")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, *processes, *dir, replica.NodeID(*node), *hub); err != nil {
		fmt.Fprintln(os.Stderr, err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, processes bool, dir string, node replica.NodeID, hub string) error {
	if node > 0 {
		return serveNode(ctx, out, node, dir, hub)
	}
	if dir == "" {
		temp, err := os.MkdirTemp("", "replicated")
		if err != nil {
			return err
		}
		defer os.RemoveAll(temp)
		dir = temp
	}
	if processes {
		return runProcesses(ctx, dir, out)
	}
	return runLocal(ctx, dir, out)
}

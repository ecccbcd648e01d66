package replica

import (
	"context"
	"fmt"
	"slices"

	"github.com/partlog/partlog/log"
)

// Reconfigure has a replica heed what NodeConfig.Partitions says of it now, in the background: the log's configuration as
// log.Log.SetConfig changes it, and its own. What the log refuses is told to NodeConfig.Trouble; the rest counts all the same.
// ErrNoReplica.
func (n *Node) Reconfigure(tp log.TopicPartition) error { return n.tell(tp, mail{settings: true}) }

// Reconfigure is Node.Reconfigure, and returns once the settings count: what comes from now on is done by them. The error is what
// the log refused, a *log.ConfigError, of which the rest counts all the same; or *RefusedError (KafkaStorageError) if it has failed,
// ctx's error, ErrNodeClosed, ErrNoReplica.
func (h *Handle) Reconfigure(ctx context.Context) error {
	if h.none() {
		return ErrNoReplica
	}
	r := h.r
	heeded := make(chan error, 1)
	if !r.post(mail{settings: true, heeded: heeded}) {
		return h.gone()
	}
	select {
	case err := <-heeded:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-r.node.ctx.Done():
		return ErrNodeClosed
	}
}

// reconfigured is a Reconfigure that somebody waits for.
type reconfigured struct {
	Reconfigure
	err    error
	heeded chan<- error // one of runner.heeders; nil: nobody
}

// settings are a partition's own, as Partitions gives them now.
func (r *runner) settings() (log.Config, Config) {
	logConf, conf := log.Config{}, r.node.conf.Config
	if r.node.conf.Partitions != nil {
		logConf, conf = r.node.conf.Partitions(r.tp)
	}
	logConf.Visibility = log.External
	conf.Self = r.node.conf.Self
	return logConf, conf
}

// fitted is conf with what the log decides.
func (c Config) fitted(l *log.Log) Config {
	have := l.Config()
	if c.CountSynced = c.CountSynced || have.Durability != log.Buffered; c.MinISR == 0 {
		c.MinISR = have.MinInSyncReplicas
	}
	return c
}

// reconfigure asks for the settings once more; one call at a time, so that none is overtaken by an older one.
func (r *runner) reconfigure(heeded chan<- error) {
	if heeded != nil {
		r.heeders = append(r.heeders, heeded)
	}
	l := r.log.Load()
	r.slowly(func() Event {
		logConf, conf := r.settings()
		err := l.SetConfig(r.node.ctx, logConf)
		if err != nil {
			err = fmt.Errorf("settings of %s: %w", r.tp, err)
			r.node.trouble(r.tp, err)
		}
		return reconfigured{Reconfigure{conf.fitted(l)}, err, heeded}
	})
}

// answerHeeder answers who waits for settings that count now.
func (r *runner) answerHeeder(c reconfigured) {
	if c.heeded != nil {
		r.heeders = slices.DeleteFunc(r.heeders, func(h chan<- error) bool { return h == c.heeded })
		c.heeded <- c.err
	}
}

// refuseHeeders answers all who wait for settings that will not be asked for any more.
func (r *runner) refuseHeeders(err error) {
	for _, h := range r.heeders {
		h <- err
	}
	r.heeders = nil
}

// trouble tells the host what went wrong in the background, unless it is the node's end.
func (n *Node) trouble(tp log.TopicPartition, err error) {
	if n.conf.Trouble != nil && n.ctx.Err() == nil {
		n.conf.Trouble(tp, err)
	}
}

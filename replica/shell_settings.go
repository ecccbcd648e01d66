package replica

import (
	"fmt"

	"github.com/partlog/partlog/log"
)

// Reconfigure has a replica heed what NodeConfig.Partitions says of it now, in the background: the log's configuration as
// log.Log.SetConfig changes it, and its own. What the log refuses is told to NodeConfig.Trouble; the rest counts all the same.
// ErrNoReplica.
func (n *Node) Reconfigure(tp log.TopicPartition) error { return n.tell(tp, mail{settings: true}) }

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
func (r *runner) reconfigure() {
	l := r.log.Load()
	r.slowly(func() Event {
		logConf, conf := r.settings()
		if err := l.SetConfig(r.node.ctx, logConf); err != nil {
			r.node.trouble(r.tp, fmt.Errorf("settings of %s: %w", r.tp, err))
		}
		return Reconfigure{conf.fitted(l)}
	})
}

// trouble tells the host what went wrong in the background, unless it is the node's end.
func (n *Node) trouble(tp log.TopicPartition, err error) {
	if n.conf.Trouble != nil && n.ctx.Err() == nil {
		n.conf.Trouble(tp, err)
	}
}

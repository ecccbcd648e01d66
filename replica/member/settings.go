package member

import (
	"context"
	"fmt"
	"maps"
	"sync"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/replica"
	"github.com/partlog/partlog/replica/controller"
)

// settings are what the store says of the topics that have replicas here.
type settings struct {
	looking chan struct{} // holds a token while one looks up what is settled then: of two answers the later one counts
	mu      sync.Mutex    // guards the rest
	list    map[string]*ownSettings
	round   int // counts the watches
}

// ownSettings are those of one topic.
type ownSettings struct {
	id     [16]byte
	told   bool // by the watch, or looked up
	config map[string]string
	minISR int // 0: it does not say
	round  int // of the watch that told them last
	turn   int // how often the watch told them
}

func (o *ownSettings) take(s controller.Settings) (changed bool) {
	changed = !o.told || !maps.Equal(o.config, s.Config)
	o.told, o.config, o.minISR = true, s.Config, s.MinISR()
	return changed
}

// followSettings has the replicas heed what the store says of their topics.
func (m *Member) followSettings() {
	all := &m.board.settings
	m.again(func() {
		all.mu.Lock()
		all.round++
		all.mu.Unlock()
		for s, err := range controller.FollowSettings(m.ctx, m.store) {
			switch {
			case err != nil:
				m.trouble(err)
			case s.Current:
				if !m.lookUpSettings() {
					return
				}
			default:
				m.settle(s)
			}
		}
	})
}

// settle takes what the watch says.
func (m *Member) settle(s controller.Settings) {
	all := &m.board.settings
	all.mu.Lock()
	own := all.list[s.Topic]
	if own != nil {
		own.turn++
	}
	m.settleLocked(own, s)
}

// settleLocked ends what the caller holds of settings.mu.
func (m *Member) settleLocked(own *ownSettings, s controller.Settings) {
	all := &m.board.settings
	changed := false
	if own != nil {
		own.round = all.round
		changed = own.take(s)
	}
	all.mu.Unlock()
	if changed {
		m.reconfigure(s.Topic)
	}
}

// lookUpAndSettle takes what the store has now. What the watch tells meanwhile may be newer than the answer, or older: then it is
// looked up once more, so that neither is laid over the other.
func (m *Member) lookUpAndSettle(ctx context.Context, topic string) error {
	all := &m.board.settings
	select {
	case all.looking <- struct{}{}:
		defer func() { <-all.looking }()
	case <-ctx.Done():
		return ctx.Err()
	}
	turn := func(own *ownSettings) int {
		if own == nil {
			return 0
		}
		return own.turn
	}
	for {
		all.mu.Lock()
		own, before := all.list[topic], turn(all.list[topic])
		all.mu.Unlock()
		s, err := controller.LookupSettings(ctx, m.store, topic)
		if err != nil {
			return err
		}
		all.mu.Lock()
		if now := all.list[topic]; now == own && turn(now) == before {
			m.settleLocked(own, s)
			return nil
		}
		all.mu.Unlock()
	}
}

// lookUpSettings reads those that a watch begun anew did not show: the topic may have none any more.
func (m *Member) lookUpSettings() bool {
	all := &m.board.settings
	var missing []string
	all.mu.Lock()
	for topic, own := range all.list {
		if own.told && own.round != all.round && len(own.config) > 0 {
			missing = append(missing, topic)
		}
	}
	all.mu.Unlock()
	for _, topic := range missing {
		if err := m.lookUpAndSettle(m.ctx, topic); err != nil {
			m.trouble(err)
			return false
		}
	}
	return true
}

// reconfigure tells the replicas of a topic to ask again.
func (m *Member) reconfigure(topic string) {
	for h := range m.node.Partitions() {
		if tp := h.TopicPartition(); tp.Topic == topic {
			_ = m.node.Reconfigure(tp) // it has gone meanwhile, or the node has
		}
	}
}

// partitions is NodeConfig.Partitions with the settings of the topic.
func (m *Member) partitions(tp log.TopicPartition) (log.Config, replica.Config) {
	logConf, conf := log.Config{}, m.conf.Config
	if m.conf.Partitions != nil {
		logConf, conf = m.conf.Partitions(tp)
	}
	all := &m.board.settings
	all.mu.Lock()
	var config map[string]string
	if own := all.list[tp.Topic]; own != nil {
		config = own.config // it is replaced, never changed
		if own.minISR > 0 {
			conf.MinISR = own.minISR
		}
	}
	all.mu.Unlock()
	if len(config) == 0 {
		return logConf, conf
	}
	logConf.Visibility = log.External
	effective, err := m.conf.Dir.Effective(logConf)
	if err == nil {
		effective, err = effective.With(config)
	}
	if err != nil { // it does not go with what this process has, or came into the store another way than through the controller
		m.trouble(fmt.Errorf("settings of topic %s: %w", tp.Topic, err))
		return logConf, conf
	}
	return effective, conf
}

// learn makes sure that the settings of a topic are known before a replica of it is made. One that is made anew has others.
func (m *Member) learn(topic string, id [16]byte) error {
	all := &m.board.settings
	all.mu.Lock()
	own := all.list[topic]
	if own == nil || own.id != id {
		own = &ownSettings{id: id}
		all.list[topic] = own // from now on what the watch tells counts
	}
	known := own.told
	all.mu.Unlock()
	if known {
		return nil
	}
	ctx, cancel := context.WithTimeout(m.ctx, m.conf.ask())
	defer cancel()
	now, err := controller.LookupSettings(ctx, m.store, topic)
	if err != nil {
		return err
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	if !own.told {
		own.round = all.round
		own.take(now)
	}
	return nil
}

// troubleOf is NodeConfig.Trouble.
func (m *Member) troubleOf(tp log.TopicPartition, err error) {
	m.trouble(err)
	if m.conf.NodeConfig.Trouble != nil {
		m.conf.NodeConfig.Trouble(tp, err)
	}
}

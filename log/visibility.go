package log

import "fmt"

// visibleWhenDurable says that readers see only what is on the device: the high watermark follows Durable.
func (c *Config) visibleWhenDurable() bool {
	return c.Visibility == WhenAcknowledged && c.Durability != Buffered
}

// raiseVisible moves the high watermark, and the last stable offset with it, after LogEnd or Durable moved. External logs
// are moved by SetHighWatermark alone.
func (l *Log) raiseVisible(o *Offsets) {
	switch c := l.cfg(); {
	case c.Visibility == External:
	case c.visibleWhenDurable():
		o.HighWatermark = max(o.HighWatermark, o.LogStart, o.Durable)
	default:
		o.HighWatermark = max(o.HighWatermark, o.LogEnd)
	}
	l.restable(o)
}

// SetHighWatermark moves the high watermark of a log whose Visibility is External, and returns where it is afterwards:
// the offset clamped to [LogStart, LogEnd]. It may move down, as a follower's does. -1 and ErrVisibility for any other log.
func (l *Log) SetHighWatermark(offset int64) (int64, error) {
	if l.cfg().Visibility != External {
		return -1, fmt.Errorf("%w: Config.Visibility of %s is %v", ErrVisibility, l.name, l.cfg().Visibility)
	}
	if err := l.ended(); err != nil {
		return -1, err
	}
	var hw int64
	l.update(func(o *Offsets) {
		hw = min(max(offset, o.LogStart), o.LogEnd)
		o.HighWatermark = hw
		l.restable(o)
	})
	return hw, nil
}

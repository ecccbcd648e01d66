package log

import (
	"context"
	"fmt"

	"github.com/partlog/partlog/internal/checkpoint"
)

// TopicIDError: SetTopicID of a partition that has another id. It is ErrTopicID.
type TopicIDError struct{ Have, Given [16]byte }

func (e *TopicIDError) Error() string {
	return fmt.Sprintf("%v: it is %v, given was %v", ErrTopicID, checkpoint.ID(e.Have), checkpoint.ID(e.Given))
}

// Is makes errors.Is(err, ErrTopicID) true.
func (e *TopicIDError) Is(target error) bool { return target == ErrTopicID }

// TopicID is the id that a broker, or SetTopicID, gave the topic of this partition; zero if it has none.
func (l *Log) TopicID() [16]byte {
	l.marks.mu.Lock()
	defer l.marks.mu.Unlock()
	return l.topicID
}

// SetTopicID gives the partition its topic's id, for good: it is on the device, in partition.metadata, when it returns. The
// id that is there already changes nothing; another one, and zero, are ErrTopicID (*TopicIDError).
func (l *Log) SetTopicID(id [16]byte) error {
	if err := l.write.lock(context.Background()); err != nil {
		return err
	}
	defer l.write.unlock()
	if err := l.ended(); err != nil {
		return err
	}
	switch have := l.TopicID(); {
	case have == id && id != [16]byte{}:
		return nil
	case have != [16]byte{}, id == [16]byte{}:
		return &TopicIDError{Have: have, Given: id}
	}
	if err := checkpoint.WriteTopicID(l.fs, l.path(checkpoint.Metadata), id); err != nil {
		if isNoSpace(err) {
			return fmt.Errorf("topic id of %s: %w: %w", l.name, ErrNoSpace, err)
		}
		return fmt.Errorf("topic id of %s: %w", l.name, err)
	}
	l.marks.mu.Lock()
	defer l.marks.mu.Unlock()
	l.topicID = id
	return nil
}

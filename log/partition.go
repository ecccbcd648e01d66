package log

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// TopicPartition names one partition. It is comparable and may be a map key.
type TopicPartition struct {
	Topic     string // 1 to 249 characters of [a-zA-Z0-9._-], not "." or ".." (see Validate)
	Partition int32  // >= 0
}

// String is Kafka's folder name: "orders-0".
func (tp TopicPartition) String() string {
	return tp.Topic + "-" + strconv.FormatInt(int64(tp.Partition), 10)
}

// Validate checks the rules Kafka has for new topics. Reading is more lenient: ParseTopicPartition accepts what a
// broker would load.
func (tp TopicPartition) Validate() error {
	const maxTopic = 249
	switch {
	case tp.Topic == "":
		return fmt.Errorf("log: a topic name must not be empty")
	case tp.Topic == "." || tp.Topic == "..":
		return fmt.Errorf("log: a topic must not be named %q", tp.Topic)
	case len(tp.Topic) > maxTopic:
		return fmt.Errorf("log: topic name of %d characters, at most %d are allowed", len(tp.Topic), maxTopic)
	case tp.Partition < 0:
		return fmt.Errorf("log: partition %d of %s is negative", tp.Partition, tp.Topic)
	}
	for i := 0; i < len(tp.Topic); i++ {
		switch c := tp.Topic[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == '-':
		default:
			return fmt.Errorf("log: topic name %q has a character that is not in [a-zA-Z0-9._-]", tp.Topic)
		}
	}
	return nil
}

// folderState says what a partition folder's name tells about it.
type folderState uint8

const (
	liveFolder     folderState = iota // orders-0
	deletingFolder                    // orders-0.<uuid>-delete: removed after file.delete.delay.ms
	strayFolder                       // orders-0.<uuid>-stray: a broker no longer knew it as its own; loaded and left alone
	futureFolder                      // orders-0.<uuid>-future: the copy under way to another disk
)

var folderSuffixes = [...]string{liveFolder: "", deletingFolder: "-delete", strayFolder: "-stray", futureFolder: "-future"}

// String is "live", "delete", "stray" or "future".
func (s folderState) String() string {
	switch {
	case s == liveFolder:
		return "live"
	case int(s) < len(folderSuffixes):
		return folderSuffixes[s][1:]
	default:
		return "folderState(" + strconv.Itoa(int(s)) + ")"
	}
}

// FolderError says why a folder name is not a partition's. A broker refuses to start over such a folder.
type FolderError struct {
	Name   string // of the folder
	Reason string // part of a sentence
}

func (e *FolderError) Error() string {
	return fmt.Sprintf("log: folder %q is not a partition: %s", e.Name, e.Reason)
}

// Is makes errors.Is(err, ErrNotLog) true.
func (e *FolderError) Is(target error) bool { return target == ErrNotLog }

// ParseTopicPartition reads the folder name of a live partition. The topic ends at the last dash, so it may hold dashes
// itself; the number is read as leniently as Kafka does ("t-00" is partition 0). Anything else, also the name of a folder
// being deleted, stray or future, is a *FolderError.
func ParseTopicPartition(folder string) (TopicPartition, error) {
	tp, state, err := parseFolder(folder)
	if err != nil {
		return TopicPartition{}, err
	}
	if state != liveFolder {
		return TopicPartition{}, &FolderError{Name: folder, Reason: "it is marked -" + state.String()}
	}
	return tp, nil
}

// parseFolder reads any partition folder name. Of a folder being deleted or stray the topic may be cut at its end: such
// names are limited to 255 characters. The error is a *FolderError.
func parseFolder(folder string) (TopicPartition, folderState, error) {
	bad := func(reason string) (TopicPartition, folderState, error) {
		return TopicPartition{}, liveFolder, &FolderError{Name: folder, Reason: reason}
	}
	if folder == "" {
		return bad("it is empty")
	}
	if strings.ContainsAny(folder, "/\\\x00") {
		return bad("it is a path")
	}
	name, state := folder, liveFolder
	for s := deletingFolder; s <= futureFolder; s++ {
		if !strings.HasSuffix(folder, folderSuffixes[s]) {
			continue
		}
		state = s
		body := strings.TrimSuffix(folder, folderSuffixes[s])
		dot := strings.LastIndexByte(body, '.')
		if dot < 0 || dot == len(body)-1 || strings.ContainsAny(folder, " \t\n\v\f\r") {
			return bad("it ends in " + folderSuffixes[s] + " but has no unique id before that")
		}
		name = body[:dot]
	}
	dash := strings.LastIndexByte(name, '-')
	switch {
	case dash < 0:
		return bad("it has no dash")
	case dash == 0:
		return bad("it has no topic")
	case dash == len(name)-1:
		return bad("it has no partition number")
	}
	n, err := strconv.ParseInt(name[dash+1:], 10, 32)
	if err != nil {
		return bad("it does not end in a partition number")
	}
	return TopicPartition{Topic: name[:dash], Partition: int32(n)}, state, nil
}

// markedFolder is the name of the partition's folder in a state other than live, with a fresh random id.
func (tp TopicPartition) markedFolder(state folderState) string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails: crypto/rand ends the program instead of returning an error
	return tp.markedFolderWith(state, id)
}

// markedFolderWith: names of folders being deleted or stray are cut to 255 characters at the topic's end, as Kafka cuts
// them; a future one is not.
func (tp TopicPartition) markedFolderWith(state folderState, id [16]byte) string {
	const maxName = 255
	tail := "-" + strconv.FormatInt(int64(tp.Partition), 10) + "." + hex.EncodeToString(id[:]) + folderSuffixes[state]
	topic := tp.Topic
	if state != futureFolder {
		topic = topic[:min(len(topic), maxName-len(tail))]
	}
	return topic + tail
}

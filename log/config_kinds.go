package log

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// limits of a whole number as Kafka has it.
type limits[T int | int64] struct {
	min, max int64
	zero     T      // constant that stands for Kafka's 0; 0 if 0 is not legal there
	negative T      // constant that stands for any negative number; 0 if none is legal
	names    string // of these constants, for people
}

func number[T int | int64](key, field string, at func(*Config) *T, l limits[T], broker ...string) setting {
	s := setting{
		key: key, field: field, topic: true,
		parse: func(c *Config, text string, _ synonym) string {
			least := l.min
			if l.negative != 0 {
				least = math.MinInt64
			}
			n, reason := parseInt(text, least, l.max)
			switch {
			case reason != "":
				return reason
			case n < 0:
				*at(c) = l.negative
			case n == 0:
				*at(c) = l.zero
			default:
				*at(c) = T(n)
			}
			return ""
		},
		print: func(c *Config) (string, bool) {
			switch v := *at(c); {
			case v == l.zero:
				return "0", true
			case v < 0:
				return "-1", true
			default:
				return strconv.FormatInt(int64(v), 10), true
			}
		},
		show: func(c *Config) string { return strconv.FormatInt(int64(*at(c)), 10) },
		fill: func(c, from *Config) { *at(c) = or(*at(c), *at(from)) },
		check: func(c *Config) string {
			v := *at(c)
			if v != 0 && (v == l.zero || v == l.negative) {
				return ""
			}
			reason := outside(int64(v), max(l.min, 1), l.max)
			if v < 0 && l.names != "" {
				reason += ", and not " + l.names
			}
			return reason
		},
	}
	for _, b := range broker {
		s.broker = append(s.broker, synonym{key: b})
	}
	return s
}

// span is the range of a duration as Kafka has it, in milliseconds.
type span struct {
	min         int64         // of positive values
	max         int64         // 0: whatever fits
	zero        time.Duration // constant that stands for Kafka's 0; 0 if 0 is not legal or is the default
	zeroDefault bool          // Kafka's 0 is legal and the default
	forever     string        // what Kafka writes for Forever; "" if there is no such thing
}

// others names the constants that mean something beside positive values.
func (l span) others() string {
	switch {
	case l.forever != "" && l.zero == Immediately:
		return ", and not Forever or Immediately"
	case l.forever != "":
		return ", and not Forever"
	case l.zero == Immediately:
		return ", and not Immediately"
	}
	return ""
}

// maxMillis is the longest time.Duration, 292 years; Kafka can name longer ones, which are Forever here.
const maxMillis = int64(math.MaxInt64 / time.Millisecond)

func duration(key, field string, at func(*Config) *time.Duration, l span, broker ...synonym) setting {
	return setting{
		key: key, field: field, topic: true, broker: broker,
		parse: func(c *Config, text string, from synonym) string {
			least, most := l.min, or(l.max, math.MaxInt64)
			if from.key != key {
				least, most = from.min, from.max
			}
			n, reason := parseInt(text, math.MinInt64, most)
			switch {
			case reason != "":
				return reason
			case n < 0 && l.forever == "-1" && (n == -1 || from.key != key):
				*at(c) = Forever // the broker takes any negative number, the topic setting only -1
			case n < 0 && l.forever == "-1":
				return outside(n, least, most) + ", and not -1"
			case n < least:
				return outside(n, least, most)
			case n == 0 && l.zero == 0 && !l.zeroDefault:
				return outside(n, 1, most)
			case n == 0:
				*at(c) = l.zero
			case n <= maxMillis/int64(from.unit/time.Millisecond):
				*at(c) = time.Duration(n) * from.unit
			case l.forever != "":
				*at(c) = Forever
			default:
				*at(c) = time.Duration(maxMillis) * time.Millisecond
			}
			return ""
		},
		print: func(c *Config) (string, bool) {
			switch v := *at(c); {
			case v == Forever:
				return l.forever, true
			case v == l.zero:
				return "0", true
			default:
				return strconv.FormatInt(v.Milliseconds(), 10), true
			}
		},
		show: func(c *Config) string { return (*at(c)).String() },
		fill: func(c, from *Config) { *at(c) = or(*at(c), *at(from)) },
		check: func(c *Config) string {
			v := *at(c)
			switch {
			case v == Forever && l.forever != "", v == Immediately && l.zero == Immediately, v == 0 && l.zeroDefault:
				return ""
			case v <= 0:
				return "not above 0" + l.others()
			case v%time.Millisecond != 0:
				return "not whole milliseconds"
			}
			return outside(v.Milliseconds(), l.min, or(l.max, math.MaxInt64))
		},
	}
}

func flag(key, field string, at func(*Config) *bool, broker ...string) setting {
	s := setting{
		key: key, field: field, topic: true,
		parse: func(c *Config, text string, _ synonym) string {
			switch strings.ToLower(text) {
			case "true":
				*at(c) = true
			case "false":
				*at(c) = false
			default:
				return "neither true nor false"
			}
			return ""
		},
		print: func(c *Config) (string, bool) { return strconv.FormatBool(*at(c)), true },
		show:  func(c *Config) string { return strconv.FormatBool(*at(c)) },
		fill:  func(c, from *Config) { *at(c) = *at(c) || *at(from) },
		check: func(*Config) string { return "" },
	}
	for _, b := range broker {
		s.broker = append(s.broker, synonym{key: b})
	}
	return s
}

// ratio is a number from 0 to 1; zero is the constant that stands for Kafka's 0.
func ratio(key, field string, at func(*Config) *float64, zero float64, broker string) setting {
	return setting{
		key: key, field: field, topic: true, broker: []synonym{{key: broker}},
		parse: func(c *Config, text string, _ synonym) string {
			f, reason := parseFloat(text)
			switch {
			case reason != "":
				return reason
			case f < 0 || f > 1:
				return "not between 0 and 1"
			case f == 0:
				*at(c) = zero
			default:
				*at(c) = f
			}
			return ""
		},
		print: func(c *Config) (string, bool) {
			if *at(c) == zero {
				return "0", true
			}
			return strconv.FormatFloat(*at(c), 'g', -1, 64), true
		},
		show: func(c *Config) string { return strconv.FormatFloat(*at(c), 'g', -1, 64) },
		fill: func(c, from *Config) { *at(c) = or(*at(c), *at(from)) },
		check: func(c *Config) string {
			if v := *at(c); v == zero || v > 0 && v <= 1 {
				return ""
			}
			return "not between 0 and 1"
		},
	}
}

// brokerOnly marks a setting whose key is a broker's.
func brokerOnly(s setting) setting {
	s.topic = false
	return s
}

func parseInt(text string, least, most int64) (int64, string) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, "not a whole number of 64 bits"
	}
	return n, outside(n, least, most)
}

func parseFloat(text string) (float64, string) {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(f) || math.IsInf(f, 0) || strings.ContainsAny(text, "xX_") {
		return 0, "not a number"
	}
	return f, ""
}

func outside[T int | int64](v, least, most T) string {
	switch {
	case v < least:
		return fmt.Sprintf("below %d", least)
	case v > most:
		return fmt.Sprintf("above %d", most)
	default:
		return ""
	}
}

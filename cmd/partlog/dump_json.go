package main

import (
	"encoding/base64"
	"encoding/json"
	"strconv"
)

// facts are the names and values of one object of the JSON form, in the order they are printed.
type facts []fact

type fact struct {
	name  string
	value any // nil, a number, string, bool, bytes (base64) or list of strings
}

// set gives a name a value, in its place if it has one already.
func (f *facts) set(name string, value any) {
	for i := range *f {
		if (*f)[i].name == name {
			(*f)[i].value = value
			return
		}
	}
	*f = append(*f, fact{name, value})
}

// append adds the facts, without braces, to dst.
func (f facts) append(dst []byte) []byte {
	for i, one := range f {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendQuote(dst, one.name) // plain names
		dst = append(dst, ':')
		dst = appendValue(dst, one.value)
	}
	return dst
}

func appendValue(dst []byte, value any) []byte {
	switch v := value.(type) {
	case nil:
		return append(dst, "null"...)
	case bool:
		return strconv.AppendBool(dst, v)
	case int:
		return strconv.AppendInt(dst, int64(v), 10)
	case int8:
		return strconv.AppendInt(dst, int64(v), 10)
	case int16:
		return strconv.AppendInt(dst, int64(v), 10)
	case int32:
		return strconv.AppendInt(dst, int64(v), 10)
	case int64:
		return strconv.AppendInt(dst, v, 10)
	case uint32:
		return strconv.AppendUint(dst, uint64(v), 10)
	case []byte:
		dst = append(dst, '"')
		dst = base64.StdEncoding.AppendEncode(dst, v)
		return append(dst, '"')
	}
	b, err := json.Marshal(value) // strings, with all that JSON wants of them
	if err != nil {
		return append(dst, "null"...)
	}
	return append(dst, b...)
}

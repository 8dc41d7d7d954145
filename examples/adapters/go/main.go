// A strict Harmony parser in Go that reads text, and its adapter:
//
//	cd examples/adapters/go && go build -o adapter .
//	harmony-conformance golden run --command examples/adapters/go/adapter
//
// It needs no tokenizer: the text of a request is equivalent to its tokens, or null.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"regexp"
	"strings"
)

type message struct {
	Role        string  `json:"role"`
	Name        string  `json:"name,omitempty"`
	Recipient   *string `json:"recipient,omitempty"`
	Content     string  `json:"content"`
	Channel     string  `json:"channel,omitempty"`
	ContentType string  `json:"content_type,omitempty"`
}

type request struct {
	ID, Kind, Strictness string
	Text, Role           *string
}

type answer struct {
	ID          string     `json:"id"`
	Messages    *[]message `json:"messages,omitempty"`
	Error       string     `json:"error,omitempty"`
	Unsupported bool       `json:"unsupported,omitempty"`
}

var (
	special = regexp.MustCompile(`<\|[a-z0-9_]+\|>`)
	word    = regexp.MustCompile(`[^ \t\n\f\r]+`) // the ends lose all white space, but only ASCII separates words
	channel = regexp.MustCompile(`^[^<\s]+`)
	roles   = map[string]bool{"user": true, "assistant": true, "system": true, "developer": true, "tool": true}
	stops   = map[string]bool{"<|end|>": true, "<|call|>": true, "<|return|>": true}
)

// parse reads a completion. The role is that of the header before it, or "".
func parse(text, role string) ([]message, error) {
	messages, header := []message{}, role != ""
	var open *message
	var held strings.Builder
	for len(text) > 0 {
		piece := text
		if at := special.FindStringIndex(text); at != nil && at[0] == 0 {
			piece = text[:at[1]]
		} else if at != nil {
			piece = text[:at[0]]
		}
		text = text[len(piece):]
		switch {
		case open != nil && stops[piece]:
			open.Content = held.String()
			messages, open = append(messages, *open), nil
			held.Reset()
		case open == nil && !header:
			if piece != "<|start|>" {
				return messages, errors.New("expected <|start|>, got " + piece)
			}
			header = true
		case header && piece == "<|message|>":
			read, err := parseHeader(held.String(), role)
			if err != nil {
				return messages, err
			}
			open, role, header = &read, "", false
			held.Reset()
		default:
			held.WriteString(piece)
		}
	}
	if header {
		return messages, errors.New("the input ends in a header")
	}
	if open != nil {
		open.Content = held.String()
		messages = append(messages, *open)
	}
	return messages, nil
}

func parseHeader(text, role string) (message, error) {
	read := message{Role: role}
	if before, after, found := strings.Cut(text, "<|channel|>"); found {
		if read.Channel = channel.FindString(after); read.Channel == "" {
			return read, errors.New("<|channel|> without a channel")
		}
		text = before + after[len(read.Channel):]
	}
	text = strings.ReplaceAll(strings.TrimSpace(text), "<|constrain|>", " <|constrain|>")
	words := word.FindAllString(strings.TrimSpace(text), -1)
	if role == "" {
		if len(words) == 0 {
			return read, errors.New("a header without a role")
		}
		read.Role = words[0]
		if !roles[read.Role] { // the name of a tool
			if len(words) == 1 && !strings.HasPrefix(words[0], "to=") {
				return read, errors.New("unknown role " + words[0])
			}
			read.Role, read.Name, words = "tool", words[0], words[1:]
		} else if read.Role == "tool" {
			read.Name = words[0]
		}
	}
	if len(words) > 0 && words[0] == read.Role {
		words = words[1:]
	}
	if last := len(words) - 1; last > 0 && !strings.HasPrefix(words[last], "to=") {
		read.ContentType, words = words[last], words[:last]
	}
	if last := len(words) - 1; last >= 0 {
		recipient := strings.TrimPrefix(words[last], "to=")
		read.Recipient, words = &recipient, words[:last]
	}
	if len(words) > 0 {
		return read, errors.New("unexpected words in a header: " + strings.Join(words, " "))
	}
	return read, nil
}

func main() {
	lines, output := bufio.NewReader(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var asked request
		if err := json.Unmarshal(line, &asked); err != nil {
			panic(err)
		}
		given := answer{ID: asked.ID}
		if asked.Kind != "parse" || asked.Strictness != "strict" || asked.Text == nil {
			given.Unsupported = true
		} else {
			role := ""
			if asked.Role != nil {
				role = *asked.Role
			}
			messages, err := parse(*asked.Text, role)
			given.Messages = &messages
			if err != nil {
				given.Error = err.Error()
			}
		}
		if err := output.Encode(given); err != nil { // one line; os.Stdout has no buffer
			panic(err)
		}
	}
}

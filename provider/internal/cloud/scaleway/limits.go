package scaleway

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/scaleway/scaleway-sdk-go/scw"

	"bigfleet-providers/provider/internal/cloud"
)

// The API has no one way to say that a limit is reached: beside quotas_exceeded
// there are 400, 403, 409 and 412, types of their own, and words only. Taken for
// what its status says, such a refusal would be blamed on the key or on the
// offering, or tried again until the deadline beside a server that is billed.

// counted is what there can be too many of.
const counted = `(servers?|instances?|machines?|types?|ips?|ipv[46]s?|address(es)?|networks?|nics?|interfaces?|volumes?|snapshots?|groups?|resources?|projects?|organi[sz]ations?|accounts?)`

// In patterns, _ and - of codes are spaces, and letters are small.
var (
	limitReached = []*regexp.Regexp{
		regexp.MustCompile(`\bquotas?\b.*\b(reached|exceeded|exhausted|full|used up|0|zero)\b`),
		regexp.MustCompile(`\b(exceed\w*|reached|over)\b.*\bquotas?\b`),
		regexp.MustCompile(`\b(limit|maximum|max)\b[^.;]*\b(reached|hit|exhausted)\b`),
		regexp.MustCompile(`\b(reached|hit)\b[^.;]*\b(limit|maximum)\b`),
		regexp.MustCompile(`\b` + counted + `( count)? limits? (of \d+ )?((is|was|has been|have been) )?exceeded\b`),
		regexp.MustCompile(`\bexceed(s|ed|ing)?\b[^.;]*\b(limit|maximum number) of ` + counted + `\b`),
		regexp.MustCompile(`\bmaximum number of [a-z ]*` + counted + `\b`),
		regexp.MustCompile(`\btoo many [a-z ]*` + counted + `\b`),
		regexp.MustCompile(`\b(exceed\w*|over)\b[^.;]*\b(allowed|permitted) number of [a-z ]*` + counted + `\b`),
		regexp.MustCompile(`\bnumber of [a-z ]*` + counted + `\b[^.;]*\bexceed\w*\b`),
		regexp.MustCompile(`\b(can ?not|can't|may not|unable to) (create|order|start|have|add|attach|allocate|reserve|use) more( than \d+)? [a-z ]*` + counted + `\b`),
		regexp.MustCompile(`\b(used|using|has|have) (up )?all (of )?(your|its|the|their) (\d+ )?[a-z ]*` + counted + `\b`),
		regexp.MustCompile(`^resources? exhausted$`),
		// A network is full, too, when it has no address for one more.
		regexp.MustCompile(`\b(networks?|subnets?|cidr|vpcs?|ipam|pools?|(address|ip) (space|range)s?)\b[^.;]*\b(full|exhausted|depleted|used up)\b`),
		regexp.MustCompile(`\b(ips?|ipv[46]s?|address(es)?)\b[^.;]*\b(exhausted|depleted|used up|all (in use|taken))\b`),
		regexp.MustCompile(`\b(no|not enough|insufficient|out of|lack of)( (more|enough|free|available|remaining|unused|private|public|flexible|primary|ip|ipam))* (ips?|ipv[46]s?|address(es)?)\b[^.;]*\b(left|available|free|remaining)\b`),
		regexp.MustCompile(`\b(no|not enough|insufficient)( (private|public|flexible|primary))* (more|free|available|remaining|unused)( (private|public|flexible|primary|ip|ipam))* (ips?|ipv[46]s?|address(es)?)\b`),
		regexp.MustCompile(`\bout of( (free|available|private|public|flexible|ip))* (ips|ipv[46]s|addresses)\b`),
	}
	// callLimit is about calls a second, which is another class.
	callLimit = regexp.MustCompile(`\b((rate|request|call|api)s? limit|too many (api )?(requests|calls))`)
	// ofOthers are what is counted beside the servers of a type.
	ofOthers = regexp.MustCompile(`\b(ips?|ipv[46]s?|address(es)?|networks?|subnets?|cidr|ipam|vpcs?|pools?|nics?|interfaces?|volumes?|snapshots?|security groups?|placement groups?)\b`)
	spaces   = strings.NewReplacer("_", " ", "-", " ")
)

// reachedLimit says that the API refused something since a limit is reached: the
// words that say so, and whether that is the limit on servers of the type
// (cloud.ErrQuota) or another (cloud.ErrLimit).
func reachedLimit(err error) (words string, kind error) {
	if response, ok := errors.AsType[*scw.ResponseError](err); ok {
		code := response.StatusCode
		if code < 400 || code >= 500 || code == http.StatusTooManyRequests || code == http.StatusNotFound {
			return "", nil
		}
	}
	for _, sentence := range sentences(err) {
		plain := spaces.Replace(strings.ToLower(sentence))
		if callLimit.MatchString(plain) {
			return "", nil
		}
		if slices.ContainsFunc(limitReached, func(r *regexp.Regexp) bool { return r.MatchString(plain) }) {
			return clip(sentence), limitOf(sentences(err)...)
		}
	}
	return "", nil
}

// limitOf tells a limit on servers from one on anything else, by what a refusal
// says.
func limitOf(sentences ...string) error {
	if ofOthers.MatchString(spaces.Replace(strings.ToLower(strings.Join(sentences, "; ")))) {
		return cloud.ErrLimit
	}
	return cloud.ErrQuota
}

// sentences are what the body of a refusal says in words or codes, the fullest
// first.
func sentences(err error) []string {
	var raw json.RawMessage
	if e, ok := errors.AsType[interface {
		error
		GetRawBody() json.RawMessage
	}](err); ok {
		raw = e.GetRawBody()
	} else if e, ok := errors.AsType[*scw.PreconditionFailedError](err); ok {
		raw = e.RawBody // the one without the method
	}
	var body struct {
		Message, Error, Type, Code, Precondition, Resource string
		HelpMessage                                        string `json:"help_message"`
		Details                                            []struct {
			Resource    string
			Argument    string `json:"argument_name"`
			HelpMessage string `json:"help_message"`
			Message     string
		}
		Fields map[string][]string
	}
	if json.Unmarshal(raw, &body) != nil {
		return nil
	}
	all := []string{body.HelpMessage}
	for _, d := range body.Details {
		all = append(all, strings.TrimSpace(d.Argument+" "+d.HelpMessage+d.Message), d.Resource)
	}
	for _, field := range slices.Sorted(maps.Keys(body.Fields)) {
		for _, text := range body.Fields[field] {
			all = append(all, field+" "+text)
		}
	}
	all = append(all, body.Message, body.Error, body.Precondition, body.Type, body.Code, body.Resource)
	return slices.DeleteFunc(all, func(s string) bool { return strings.TrimSpace(s) == "" })
}

// limitWords are the vendor's words, with the sentence that says of a limit.
func limitWords(words, sentence string) string {
	if strings.Contains(words, sentence) {
		return words
	}
	return fmt.Sprintf("%s: %s", words, sentence)
}

// Limit makes an error about a limit on anything but servers of the type: where a
// call is for one thing only, what it is refused for need not be said.
func Limit(err error, advice string) error {
	if !errors.Is(err, cloud.ErrQuota) {
		return err
	}
	if !errors.Is(err, cloud.ErrLimit) {
		err = fmt.Errorf("%w: %w", cloud.ErrLimit, err)
	}
	return cloud.Advise(err, advice)
}

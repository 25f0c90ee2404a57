package fakecloud

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

const maxPageSize = 100

// window is which part of a list a client asked for.
type window struct {
	page, size int
}

// pageWindow reads page and the size parameter. Values that cannot be meant
// fall back; sizes over 100 are cut to it.
func pageWindow(q url.Values, sizeName string, standard int) window {
	w := window{page: 1, size: standard}
	if n, err := strconv.Atoi(q.Get("page")); err == nil && n > 0 {
		w.page = n
	}
	if n, err := strconv.Atoi(q.Get(sizeName)); err == nil && n > 0 {
		w.size = min(n, maxPageSize)
	}
	return w
}

// cut keeps one page of the list and returns its full length too.
func cut[T any](w window, seq iter.Seq[T]) (page []T, total int) {
	first, page := (w.page-1)*w.size, []T{}
	for t := range seq {
		if total >= first && len(page) < w.size {
			page = append(page, t)
		}
		total++
	}
	return page, total
}

// headers are how Instances v1 pages: the SDK stops after page one without the
// count. An empty list has page 0 as its last.
func (w window) headers(path string, q url.Values, total int) http.Header {
	last := (total + w.size - 1) / w.size
	link := func(page int, rel string) string {
		rest := maps.Clone(q)
		rest.Del("page")
		rest.Del("per_page")
		target := fmt.Sprintf("%s?page=%d&per_page=%d&%s", path, page, w.size, rest.Encode())
		return fmt.Sprintf(`<%s>; rel=%q`, strings.TrimSuffix(target, "&"), rel)
	}
	var links []string
	if w.page < last {
		links = append(links, link(w.page+1, "next"))
	}
	links = append(links, link(last, "last"))
	return http.Header{
		"X-Total-Count": {strconv.Itoa(total)},
		"Link":          {strings.Join(links, ",")},
	}
}

// commaList reads a comma-joined parameter; a comma inside a value cannot be
// told from a separator, as in the real API.
func commaList(q url.Values, name string) []string {
	var out []string
	for _, v := range q[name] {
		for part := range strings.SplitSeq(v, ",") {
			if part != "" {
				out = append(out, part)
			}
		}
	}
	return out
}

// newestFirst yields the objects for which every check holds, newest first.
func newestFirst[T any](list []T, keep func(T) bool) iter.Seq[T] {
	return func(yield func(T) bool) {
		for _, t := range slices.Backward(list) {
			if keep(t) && !yield(t) {
				return
			}
		}
	}
}

func oldestFirst[T any](list []T, keep func(T) bool) iter.Seq[T] {
	return func(yield func(T) bool) {
		for _, t := range list {
			if keep(t) && !yield(t) {
				return
			}
		}
	}
}

// visible says whether the key sees the object and the object passes the
// filters that all lists share; organization stands for all its projects.
func (k *Key) visible(o *object, project, organization, name string) bool {
	return k.sees(o.project) &&
		(project == "" || o.project == project) &&
		(organization == "" || organization == DefaultOrganizationID) &&
		strings.Contains(o.name, name)
}

func byName[T interface{ common() *object }](a, b T) int {
	return cmp.Or(strings.Compare(a.common().name, b.common().name), cmp.Compare(a.common().serial, b.common().serial))
}

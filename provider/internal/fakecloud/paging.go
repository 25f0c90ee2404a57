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
	// shift moves the pages after the first, as when that many objects had been
	// made (or, negative, the first ones deleted) since page one was read.
	shift int
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
	if w.page > 1 {
		total = w.shift
	}
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

// inOrder yields what passes, as order_by asks; oldest first is the standard.
func inOrder[T interface{ common() *object }](list []T, orderBy string, keep func(T) bool) iter.Seq[T] {
	if strings.HasPrefix(orderBy, "name_") {
		list = slices.SortedFunc(slices.Values(list), byName)
	}
	if strings.HasSuffix(orderBy, "_desc") {
		return newestFirst(list, keep)
	}
	return oldestFirst(list, keep)
}

// countedList answers one page as the products with a count in the body do.
func countedList[T interface{ common() *object }, V any](q *request, name string, list []T, keep func(T) bool, view func(T) V) (*response, error) {
	found, total := cut(pageWindow(q.query, "page_size", 50), inOrder(list, q.query.Get("order_by"), keep))
	views := make([]V, 0, len(found))
	for _, t := range found {
		views = append(views, view(t))
	}
	return ok(countedBody{name, views, total})
}

// countedBody is {"volumes":[…],"total_count":1}.
type countedBody struct {
	name  string
	list  any
	total int
}

// MarshalJSON implements json.Marshaler.
func (b countedBody) MarshalJSON() ([]byte, error) {
	list, err := encode(b.list, false)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, `{%q:%s,"total_count":%d}`, b.name, list, b.total), nil
}

// headedList answers one page, newest first, as Instances v1 does: with the
// count in a header.
func headedList[T interface{ common() *object }, V any](q *request, name string, list []T, keep func(T) bool, view func(T) V) (*response, error) {
	w := pageWindow(q.query, "per_page", 50)
	found, total := cut(w, newestFirst(list, keep))
	views := make([]V, 0, len(found))
	for _, t := range found {
		views = append(views, view(t))
	}
	return &response{status: http.StatusOK, header: w.headers(q.pagePath(), q.query, total), body: map[string]any{name: views}}, nil
}

// visible says whether the key sees the object and the object passes the
// filters that all lists share; organization stands for all its projects.
func (k *caller) visible(o *object, project, organization, name string) bool {
	return k.sees(o.project) &&
		(project == "" || o.project == project) &&
		(organization == "" || organization == DefaultOrganizationID) &&
		strings.Contains(o.name, name)
}

func byName[T interface{ common() *object }](a, b T) int {
	return cmp.Or(strings.Compare(a.common().name, b.common().name), cmp.Compare(a.common().serial, b.common().serial))
}

package monitoring

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// schemaVersion is that of the dashboard model; Grafana 10 and later read it,
// and bring it up to their own.
const schemaVersion = 39

// columns is the width of Grafana's grid.
const columns = 24

// dashboard is as much of Grafana's dashboard model as we use.
type dashboard struct {
	UID           string     `json:"uid"`
	Title         string     `json:"title"`
	Description   string     `json:"description"`
	Tags          []string   `json:"tags"`
	SchemaVersion int        `json:"schemaVersion"`
	Editable      bool       `json:"editable"`
	GraphTooltip  int        `json:"graphTooltip"`
	Refresh       string     `json:"refresh"`
	Timezone      string     `json:"timezone"`
	Time          timeRange  `json:"time"`
	Templating    templating `json:"templating"`
	Annotations   struct {
		List []any `json:"list"`
	} `json:"annotations"`
	Panels []panel `json:"panels"`
}

type timeRange struct {
	From string `json:"from"`
	To   string `json:"to"`
}

type templating struct {
	List []variable `json:"list"`
}

type variable struct {
	Name       string      `json:"name"`
	Label      string      `json:"label"`
	Type       string      `json:"type"`
	Query      string      `json:"query"`
	Datasource *datasource `json:"datasource,omitempty"`
	Definition string      `json:"definition,omitempty"`
	Refresh    int         `json:"refresh"`
	IncludeAll bool        `json:"includeAll"`
	Multi      bool        `json:"multi"`
	AllValue   string      `json:"allValue,omitempty"`
	Sort       int         `json:"sort"`
}

type datasource struct {
	Type string `json:"type"`
	UID  string `json:"uid"`
}

type panel struct {
	ID          int            `json:"id"`
	Type        string         `json:"type"`
	Title       string         `json:"title"`
	Description string         `json:"description,omitempty"`
	GridPos     grid           `json:"gridPos"`
	Datasource  *datasource    `json:"datasource,omitempty"`
	FieldConfig *fieldConfig   `json:"fieldConfig,omitempty"`
	Options     map[string]any `json:"options,omitempty"`
	Targets     []target       `json:"targets,omitempty"`
	Collapsed   *bool          `json:"collapsed,omitempty"`
	Panels      []panel        `json:"panels,omitempty"` // of a row that is folded
}

type grid struct {
	H int `json:"h"`
	W int `json:"w"`
	X int `json:"x"`
	Y int `json:"y"`
}

type fieldConfig struct {
	Defaults  defaults   `json:"defaults"`
	Overrides []override `json:"overrides"`
}

type defaults struct {
	Unit       string         `json:"unit"`
	Min        *float64       `json:"min,omitempty"`
	Decimals   *int           `json:"decimals,omitempty"`
	Color      map[string]any `json:"color"`
	Custom     map[string]any `json:"custom,omitempty"`
	Mappings   []any          `json:"mappings"`
	Thresholds thresholds     `json:"thresholds"`
	NoValue    string         `json:"noValue,omitempty"`
}

type override struct {
	Matcher    map[string]any   `json:"matcher"`
	Properties []map[string]any `json:"properties"`
}

type thresholds struct {
	Mode  string      `json:"mode"`
	Steps []threshold `json:"steps"`
}

type threshold struct {
	Color string   `json:"color"`
	Value *float64 `json:"value"` // nil: from the lowest on
}

type target struct {
	Datasource   *datasource `json:"datasource"`
	RefID        string      `json:"refId"`
	Expr         string      `json:"expr"`
	LegendFormat string      `json:"legendFormat"`
	Range        bool        `json:"range"`
	Instant      bool        `json:"instant"`
	EditorMode   string      `json:"editorMode"`
}

// Dashboard returns the dashboard of a cloud's provider as Grafana imports it.
func Dashboard(cloud string) ([]byte, error) {
	source := &datasource{Type: "prometheus", UID: "${datasource}"}
	d := dashboard{
		UID: "bigfleet-" + cloud, Title: "BigFleet provider: " + cloud,
		Description:   "The fleet at a glance, and what the provider does with it.",
		Tags:          []string{"bigfleet", cloud},
		SchemaVersion: schemaVersion, Editable: true, GraphTooltip: 1, Refresh: "30s", Timezone: "browser",
		Time: timeRange{From: "now-6h", To: "now"},
		Templating: templating{List: []variable{
			{Name: "datasource", Label: "Prometheus", Type: "datasource", Query: "prometheus", Refresh: 1},
			{
				Name: "instance", Label: "Provider", Type: "query", Datasource: source, Refresh: 2, IncludeAll: true, Multi: true, AllValue: ".*", Sort: 1,
				Query:      expand(cloud, "label_values(bigfleet_build_info, instance)"),
				Definition: expand(cloud, "label_values(bigfleet_build_info, instance)"),
			},
		}},
	}
	d.Annotations.List = []any{}
	y := 0
	for i, s := range sections() {
		row := panel{ID: 100 * (i + 1), Type: "row", Title: s.title, GridPos: grid{H: 1, W: columns, Y: y}, Collapsed: new(bool)}
		d.Panels = append(d.Panels, row)
		y++
		x, tallest := 0, 0
		for j, c := range s.charts {
			if x+c.width > columns {
				x, y, tallest = 0, y+tallest, 0
			}
			p := c.panel(cloud, source)
			p.ID, p.GridPos = row.ID+j+1, grid{H: c.height, W: c.width, X: x, Y: y}
			d.Panels = append(d.Panels, p)
			x, tallest = x+c.width, max(tallest, c.height)
		}
		y += tallest
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(d); err != nil {
		return nil, fmt.Errorf("encode the dashboard: %w", err)
	}
	return out.Bytes(), nil
}

// panel is the chart in Grafana's model.
func (c chart) panel(cloud string, source *datasource) panel {
	p := panel{
		Type: c.kind, Title: c.title, Description: c.about, Datasource: source,
		FieldConfig: &fieldConfig{Overrides: []override{}, Defaults: defaults{
			Unit: c.unit, Min: new(float64), Mappings: []any{}, NoValue: "0",
			Color:      map[string]any{"mode": "palette-classic"},
			Thresholds: thresholds{Mode: "absolute", Steps: []threshold{{Color: "green"}}},
		}},
	}
	for _, step := range c.bad {
		p.FieldConfig.Defaults.Thresholds.Steps = append(p.FieldConfig.Defaults.Thresholds.Steps, threshold{Color: step.color, Value: &step.from})
	}
	switch c.kind {
	case stat:
		p.FieldConfig.Defaults.Color["mode"] = "thresholds"
		p.Options = map[string]any{
			"colorMode": "value", "graphMode": "area", "justifyMode": "auto", "orientation": "auto", "textMode": "auto",
			"reduceOptions": map[string]any{"calcs": []string{"lastNotNull"}, "fields": "", "values": false},
		}
	case timeseries:
		p.FieldConfig.Defaults.Custom = map[string]any{
			"drawStyle": "line", "lineWidth": 1, "fillOpacity": 10, "showPoints": "never", "spanNulls": false,
			"stacking": map[string]any{"mode": "none", "group": "A"},
		}
		if c.stacked {
			p.FieldConfig.Defaults.Custom["fillOpacity"] = 40
			p.FieldConfig.Defaults.Custom["stacking"] = map[string]any{"mode": "normal", "group": "A"}
		}
		p.Options = map[string]any{
			"legend":  map[string]any{"displayMode": "table", "placement": "right", "calcs": []string{"lastNotNull", "max"}, "showLegend": true},
			"tooltip": map[string]any{"mode": "multi", "sort": "desc"},
		}
	}
	for i, s := range c.series {
		p.Targets = append(p.Targets, target{
			Datasource: source, RefID: string(rune('A' + i)), Expr: expand(cloud, s.expr), LegendFormat: s.legend,
			Range: c.kind == timeseries, Instant: c.kind != timeseries, EditorMode: "code",
		})
	}
	return p
}

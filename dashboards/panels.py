"""What a panel, a row, a variable and a dashboard of ours look like in Grafana's JSON."""

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
GREEN, ORANGE, RED = "green", "orange", "red"


def query(expr, legend="", instant=False, table=False):
    found = {"expr": " ".join(expr.split()), "legendFormat": legend or "__auto", "instant": instant,
             "range": not instant}
    if table:
        found["format"] = "table"
    return found


def panel(kind, title, queries, unit, *, width=8, height=8, steps=None, description="", **custom):
    """`queries` are query() or (expr, legend); `steps` are (from, colour) of the thresholds."""
    targets = []
    for index, item in enumerate(queries):
        target = item if isinstance(item, dict) else query(*item)
        targets.append({"refId": chr(ord("A") + index), "datasource": DATASOURCE, **target})
    thresholds = [{"color": GREEN, "value": None}] + [{"color": colour, "value": at} for at, colour in steps or []]
    defaults = {"unit": unit, "thresholds": {"mode": "absolute", "steps": thresholds}, "mappings": [],
                "color": {"mode": "thresholds" if kind in ("stat", "gauge") else "palette-classic"}, "custom": custom}
    return {"type": kind, "title": title, "description": description, "datasource": DATASOURCE,
            "fieldConfig": {"defaults": defaults, "overrides": []}, "options": OPTIONS[kind], "targets": targets,
            "gridPos": {"w": width, "h": height}}


OPTIONS = {
    "timeseries": {"legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
                   "tooltip": {"mode": "multi", "sort": "desc"}},
    "stat": {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}, "colorMode": "value",
             "graphMode": "area", "textMode": "auto", "orientation": "auto", "justifyMode": "auto"},
    "table": {"showHeader": True, "cellHeight": "sm", "footer": {"show": False}},
    "state-timeline": {"mergeValues": True, "showValue": "never", "rowHeight": 0.9, "alignValue": "left",
                       "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
                       "tooltip": {"mode": "single", "sort": "none"}},
}


def graph(title, queries, unit, **more):
    stacked = more.pop("stacked", False)
    log = more.pop("log", False)
    dashed = bool(more.get("steps"))
    custom = {"drawStyle": "line", "lineWidth": 1, "fillOpacity": 30 if stacked else 0, "showPoints": "never",
              "spanNulls": False, "stacking": {"mode": "normal" if stacked else "none", "group": "A"},
              "scaleDistribution": {"type": "log", "log": 10} if log else {"type": "linear"},
              "thresholdsStyle": {"mode": "dashed" if dashed else "off"}}
    return panel("timeseries", title, queries, unit, **more, **custom)


def stat(title, expr, unit, **more):
    return panel("stat", title, [query(expr, more.pop("legend", ""), instant=True)], unit, height=4,
                 **{"width": 4, **more})


def variable(name, label, definition, *, multi=True, hide=0):
    """Values from a label; an "All" that matches every one where several may be chosen."""
    return {"name": name, "label": label, "type": "query", "datasource": DATASOURCE, "definition": definition,
            "query": {"query": definition, "refId": f"Prometheus-{name}"}, "refresh": 2, "sort": 7, "hide": hide,
            "multi": multi, "includeAll": multi, "allValue": ".*" if multi else None, "options": [],
            "current": {}, "regex": "", "skipUrlSync": False}


DATASOURCE_VARIABLE = {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus",
                       "refresh": 1, "hide": 0, "multi": False, "includeAll": False, "options": [], "current": {},
                       "regex": "", "skipUrlSync": False}


def annotation(name, colour, expr, text, *, value_is_time=False):
    return {"name": name, "enable": True, "hide": False, "iconColor": colour, "datasource": DATASOURCE,
            "expr": " ".join(expr.split()), "step": "15s", "titleFormat": name, "textFormat": text, "tagKeys": "",
            "useValueForTime": value_is_time}


def dashboard(uid, title, description, variables, rows, annotations=()):
    """`rows` are (title, [panels]); panels are placed from left to right, 24 columns wide."""
    panels, top, number = [], 0, 0
    for row_title, members in rows:
        number += 1
        panels.append({"id": number, "type": "row", "title": row_title, "collapsed": False, "panels": [],
                       "gridPos": {"x": 0, "y": top, "w": 24, "h": 1}})
        top += 1
        left, tallest = 0, 0
        for member in members:
            number += 1
            width, height = member["gridPos"]["w"], member["gridPos"]["h"]
            if left + width > 24:
                top, left, tallest = top + tallest, 0, 0
            panels.append({"id": number, **member, "gridPos": {"x": left, "y": top, "w": width, "h": height}})
            left, tallest = left + width, max(tallest, height)
        top += tallest
    return {"id": None, "uid": uid, "title": title, "description": description, "tags": ["megatrain"],
            "schemaVersion": 39, "version": 1, "editable": True, "graphTooltip": 1, "refresh": "15s",
            "time": {"from": "now-1h", "to": "now"}, "timepicker": {}, "timezone": "browser", "weekStart": "",
            "fiscalYearStartMonth": 0, "liveNow": False,
            "links": [{"type": "dashboards", "tags": ["megatrain"], "title": "Megatrain", "asDropdown": True,
                       "includeVars": True, "keepTime": True, "targetBlank": False, "icon": "external link",
                       "tooltip": "", "url": ""}],
            "templating": {"list": [DATASOURCE_VARIABLE, *variables]},
            "annotations": {"list": list(annotations)}, "panels": panels}

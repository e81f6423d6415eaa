// Reads a JSON array of Kubernetes objects from stdin; prints a JSON array of faults, empty where all are valid.
// Types and required fields: the validators of kubernetes-models, which are compiled from Kubernetes' JSON schemas. Unknown
// fields, which those let through: the attribute maps of @kubernetes/client-node. Custom resources are not known to either
// and are reported. Usage: node check_manifests.js NODE_MODULES
"use strict";
const fs = require("fs");
const path = require("path");

const modules = process.argv[2];
const MODELS = path.join(modules, "kubernetes-models");
const ATTRIBUTES = path.join(modules, "@kubernetes/client-node/dist/gen/model");

// "apps/v1" is a folder of kubernetes-models; the core group's is "v1".
function modelOf(object) {
  try {
    return require(path.join(MODELS, object.apiVersion, object.kind))[object.kind];
  } catch (error) {
    return null;
  }
}

function attributesOf(type) {
  const file = path.join(ATTRIBUTES, type[0].toLowerCase() + type.slice(1) + ".js");
  if (!fs.existsSync(file)) return null;
  return require(file)[type].attributeTypeMap;
}

// Calls report(path) for each field that the type does not have.
function walk(value, type, where, report) {
  const list = /^Array<(.+)>$/.exec(type);
  const map = /^\{ \[key: string\]: (.+); \}$/.exec(type);
  if (list) {
    value.forEach((item, index) => walk(item, list[1], `${where}[${index}]`, report));
  } else if (map) {
    for (const [key, item] of Object.entries(value)) walk(item, map[1], `${where}.${key}`, report);
  } else if (value !== null && typeof value === "object") {
    const attributes = attributesOf(type);
    if (attributes === null) {
      if (type !== "any") report(`${where}: of the unknown type ${type}`);
      return;
    }
    for (const [key, item] of Object.entries(value)) {
      const attribute = attributes.find((a) => a.baseName === key);
      if (attribute === undefined) {
        report(`${where}.${key}: unknown field of ${type}`);
      } else {
        walk(item, attribute.type, `${where}.${key}`, report);
      }
    }
  }
}

const faults = [];
for (const object of JSON.parse(fs.readFileSync(0, "utf8"))) {
  const name = `${object.kind}/${object.metadata && object.metadata.name}`;
  const model = modelOf(object);
  if (!model) {
    faults.push(`${name}: no schema of ${object.apiVersion} ${object.kind}`);
    continue;
  }
  try {
    new model(object).validate();
  } catch (error) {
    faults.push(`${name}: ${error.message}`);
  }
  const version = object.apiVersion.split("/").pop();
  walk(object, version[0].toUpperCase() + version.slice(1) + object.kind, name, (fault) => faults.push(fault));
}
process.stdout.write(JSON.stringify(faults));

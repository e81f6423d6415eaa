// The ids that other programs give a text: node peer_ids.cjs MODULES tiktoken TEXT OUT
//                                     or: node peer_ids.cjs MODULES huggingface TEXT OUT TOKENIZER_JSON
// The ids are written as 32-bit integers. Prints the seconds of processor time that encoding took.
const fs = require('fs');
const path = require('path');

const [modules, program, text, out, file] = process.argv.slice(2);
const input = fs.readFileSync(text).toString('utf8');
let encode;
if (program === 'tiktoken') {
  const encoder = require(path.join(modules, 'tiktoken')).get_encoding('gpt2');
  encode = () => encoder.encode_ordinary(input);
} else {
  const { Tokenizer } = require(path.join(modules, '@huggingface/tokenizers'));
  const tokenizer = new Tokenizer(JSON.parse(fs.readFileSync(file)), {});
  encode = () => tokenizer.encode(input, { add_special_tokens: false }).ids;
}
const begin = process.cpuUsage();
const ids = encode();
console.log(process.cpuUsage(begin).user / 1e6);
fs.writeFileSync(out, Buffer.from(new Int32Array(ids).buffer));

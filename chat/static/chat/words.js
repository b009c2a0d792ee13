// The page's language: its words, made by Django from the same translations as the page, and its numbers.

const itself = (text) => text;
const either = (one, many, count) => (count === 1 ? one : many);

/** The sentence in the page's language; without its translations, in English. */
export const gettext = globalThis.gettext ?? itself;
/** Likewise, of the two the one for that many. */
export const ngettext = globalThis.ngettext ?? either;

const { lang } = document.documentElement;

export const isEnglish = lang === "en";

/** A sentence with `%(name)s` replaced; numbers are written as the language writes them. */
export function say(sentence, data) {
  return sentence.replace(/%\((\w+)\)s/g, (_, name) => number(data[name]));
}

/** A number as the language writes it; anything else as it is. */
export function number(value, options) {
  return typeof value === "number" ? value.toLocaleString(lang, options) : value;
}

# A release as files: about.csv, tables.csv, one CSV for each table and one for its covariances (docs/format.md).

FORM <- "sfumato tables 1"

#' Read a release
#'
#' @param folder The folder that `sfumato export --format plain` wrote, or the one above its `plain`.
#' @return The release: what it promises, and its tables.
read_release <- function(folder) {
  if (!file.exists(file.path(folder, "about.csv"))) folder <- file.path(folder, "plain")
  if (!file.exists(file.path(folder, "about.csv"))) {
    stop("no about.csv is there; write it with: sfumato export DIR -o files --format plain", call. = FALSE)
  }
  rows <- read_texts(file.path(folder, "about.csv"))
  about <- as.list(stats::setNames(rows$value, rows$key))
  if (!identical(about$format, FORM)) {
    stop(sprintf("the files are of form '%s'; this package reads '%s'", about$format, FORM), call. = FALSE)
  }
  index <- read_texts(file.path(folder, "tables.csv"))
  tables <- lapply(seq_len(nrow(index)), function(i) {
    split <- strsplit(index$attributes[i], " ", fixed = TRUE)[[1]]
    names <- vapply(split, utils::URLdecode, "", USE.NAMES = FALSE)
    list(
      attributes = names, file = file.path(folder, index$file[i]),
      covariances = if (nzchar(index$covariances[i])) file.path(folder, index$covariances[i]) else NULL
    )
  })
  names(tables) <- index$table
  structure(list(about = about, tables = tables, measures = read_measures(folder)), class = "sfumato_release")
}

print.sfumato_release <- function(x, ...) {
  cat(sprintf("%s: %d tables, %s\n", x$about$title, length(x$tables), x$about$guarantee))
  cat(sprintf("protected: %s; intervals hold with %s\n", x$about$protected, x$about$confidence))
  for (one in x$tables) cat("  ", paste(one$attributes, collapse = " x "), "\n", sep = "")
  for (one in x$measures) {
    by <- if (length(one$by)) paste(" by", paste(one$by, collapse = " x ")) else ""
    cat("  statistics of ", one$measure, by, "\n", sep = "")
  }
  invisible(x)
}

#' One table of a release
#'
#' @param release A release.
#' @param ... Names of attributes, in any order.
#' @return A data frame for ggplot and all else: labels as factors in their declared order, answer, standard_error, low,
#'   high, and what the files have besides.
release_table <- function(release, ...) {
  read_cells(find_table(release, c(...)))
}

#' Means, sums and other statistics of a measure
#'
#' @param release A release.
#' @param measure The name of the measure, such as "income".
#' @param ... Names of the attributes by whose cells they are, in any order; none for those of everybody.
#' @return A data frame with one row for each statistic and cell: the statistic as a factor, labels as factors, answer,
#'   standard_error, low, high, and what the files have besides. Its attribute "note" says of which values they are.
measure_table <- function(release, measure, ...) {
  by <- c(...)
  known <- vapply(release$measures, `[[`, "", "measure")
  if (length(known) == 0) stop("no measure is in the release; it has counts alone", call. = FALSE)
  if (!is.character(measure) || length(measure) != 1 || !measure %in% known) {
    stop(sprintf("'%s' is no measure of the release; it has %s", paste(measure, collapse = ", "), paste(unique(known), collapse = ", ")), call. = FALSE)
  }
  fits <- vapply(release$measures, function(one) one$measure == measure && setequal(one$by, by), NA)
  if (!any(fits)) {
    has <- vapply(release$measures[known == measure], function(one) {
      if (length(one$by)) paste("by", paste(one$by, collapse = " x ")) else "of everybody"
    }, "")
    asked <- if (length(by)) paste("by", paste(by, collapse = " x ")) else "of everybody"
    stop(sprintf("no statistics of %s %s are in the release; it has those %s", measure, asked, paste(has, collapse = "; ")), call. = FALSE)
  }
  one <- release$measures[fits][[1]]
  structure(read_cells(one), note = one$note)
}

#' All answers of a release
#'
#' @param release A release.
#' @return One row for each cell of each table: table, cell, and the numbers.
answers <- function(release) {
  all <- lapply(names(release$tables), function(name) {
    one <- release$tables[[name]]
    cells <- read_cells(one)
    label <- do.call(paste, c(lapply(cells[one$attributes], as.character), sep = " / "))
    numbers <- setdiff(names(cells), one$attributes)
    cbind(data.frame(table = name, cell = label, stringsAsFactors = FALSE), cells[numbers])
  })
  do.call(rbind, all)
}

#' Answer a further question
#'
#' The number of records of the cells that satisfy a condition, from the smallest table that has its attributes.
#'
#' @param release A release.
#' @param condition An expression over attributes, whose cells are texts: `sex == "male" & age %in% c("0..19")`.
#' @param confidence Of the interval.
#' @return A data frame of one row: answer, standard_error, low, high.
ask <- function(release, condition, confidence = 0.95) {
  asked <- substitute(condition)
  caller <- parent.frame()
  known <- unique(unlist(lapply(release$tables, `[[`, "attributes")))
  wanted <- intersect(all.vars(asked), known)
  if (length(wanted) == 0) stop("the condition names no attribute of the release", call. = FALSE)
  one <- find_table(release, wanted, among = TRUE)
  cells <- read_cells(one)
  texts <- lapply(cells[one$attributes], as.character)
  absent <- unlist(lapply(constants(asked), function(text) if (any(vapply(texts, `%in%`, NA, x = text))) NULL else text))
  if (length(absent)) {
    stop(sprintf("'%s' is no cell of %s", absent[1], paste(wanted, collapse = ", ")), call. = FALSE)
  }
  chosen <- eval(asked, texts, caller)
  if (!is.logical(chosen) || length(chosen) != nrow(cells) || anyNA(chosen)) {
    stop("a condition is true or false of every cell", call. = FALSE)
  }
  combine(release, one$attributes, as.numeric(chosen), confidence)
}

#' A linear combination of a table's cells
#'
#' @param release A release.
#' @param attributes The table.
#' @param weights One number for each row of `release_table`.
#' @param confidence Of the interval.
#' @return A data frame of one row: answer, standard_error, low, high. Noise of Laplace's law has no normal intervals: theirs
#'   is that of every unimodal law (Vysochanskij and Petunin), and too wide.
combine <- function(release, attributes, weights, confidence = 0.95) {
  one <- find_table(release, attributes)
  cells <- read_cells(one)
  if (!is.numeric(weights) || length(weights) != nrow(cells) || any(!is.finite(weights))) {
    stop(sprintf("weights are %d finite numbers, one for each cell", nrow(cells)), call. = FALSE)
  }
  if (!is.numeric(confidence) || length(confidence) != 1 || is.na(confidence) || confidence <= 0 || confidence >= 1) {
    stop("confidence is a number between 0 and 1", call. = FALSE)
  }
  if (release$about$projected == "yes" || release$about$biased == "yes") {
    stop("projected or biased answers have no standard errors to combine; export the release before the projection", call. = FALSE)
  }
  if (is.null(one$covariances)) stop("the covariances of this table are not in the files: it has too many cells", call. = FALSE)
  covariances <- as.matrix(utils::read.csv(one$covariances, header = FALSE))
  used <- weights != 0
  if (anyNA(cells$answer[used])) stop("a cell of this sum was left out of the files, by its flag", call. = FALSE)
  answer <- sum(weights[used] * cells$answer[used])
  error <- sqrt(max(0, drop(weights %*% covariances %*% weights)))
  laplace <- release$about$noise == "laplace"
  if (laplace && confidence < 5 / 6) stop("of Laplace noise intervals are told from a confidence of 5/6 on", call. = FALSE)
  factor <- if (laplace) sqrt(4 / (9 * (1 - confidence))) else stats::qnorm((1 + confidence) / 2)
  data.frame(answer = answer, standard_error = error, low = answer - factor * error, high = answer + factor * error)
}

# What measures.csv names, where there is one: of each file the measure, the axis of statistics, and the groups.
read_measures <- function(folder) {
  path <- file.path(folder, "measures.csv")
  if (!file.exists(path)) return(list())
  index <- read_texts(path)
  lapply(seq_len(nrow(index)), function(i) {
    split <- strsplit(index$attributes[i], " ", fixed = TRUE)[[1]]
    names <- vapply(split, utils::URLdecode, "", USE.NAMES = FALSE)
    list(measure = index$measure[i], attributes = names, by = names[-1], file = file.path(folder, index$file[i]), note = index$note[i])
  })
}

read_texts <- function(path) {
  utils::read.csv(path, colClasses = "character", encoding = "UTF-8", check.names = FALSE, na.strings = character())
}

read_cells <- function(one) {
  cells <- read_texts(one$file)
  for (name in names(cells)) {
    if (name %in% one$attributes) cells[[name]] <- factor(cells[[name]], levels = unique(cells[[name]]))
    else if (name != "flag") cells[[name]] <- suppressWarnings(as.numeric(cells[[name]]))
  }
  cells
}

# A table by its attributes in any order; among: the smallest that has these and maybe others.
find_table <- function(release, attributes, among = FALSE) {
  fits <- vapply(release$tables, function(one) {
    if (among) all(attributes %in% one$attributes) else setequal(attributes, one$attributes)
  }, NA)
  if (!any(fits)) {
    stop(sprintf("no table of %s is in the release", paste(attributes, collapse = " x ")), call. = FALSE)
  }
  found <- release$tables[fits]
  found[[which.min(vapply(found, function(one) length(one$attributes), 0L))]]
}

# The texts in a condition, which are labels of cells.
constants <- function(expression) {
  if (is.character(expression)) return(expression)
  if (is.call(expression)) return(unlist(lapply(as.list(expression)[-1], constants)))
  NULL
}

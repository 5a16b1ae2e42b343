# Reads a folder of plain files and writes what R says of it, to be compared with what Python says.
# Rscript read.R FOLDER OUT

library(sfumato)

given <- commandArgs(trailingOnly = TRUE)
if (length(given) == 2) {
  release <- read_release(given[1])
  print(release)
  write <- function(frame, name) {
    numbers <- vapply(frame, is.numeric, NA)
    frame[numbers] <- lapply(frame[numbers], function(x) sprintf("%.17g", x))
    write.csv(frame, file.path(given[2], name), row.names = FALSE)
  }
  write(answers(release), "answers.csv")
  sexes <- release_table(release, "sex")
  stopifnot(is.factor(sexes$sex), identical(levels(sexes$sex)[1:2], c("female", "male")))
  old <- c("60..79", "80..99")
  asked <- rbind(
    ask(release, sex == "female"),
    ask(release, sex == "female" & age %in% old, confidence = 0.9),
    ask(release, !(age == "0..19")),
    combine(release, c("sex", "age"), rep(1, nrow(release_table(release, "age", "sex"))))
  )
  write(asked, "asked.csv")
  refused <- function(call, words) {
    said <- tryCatch({ force(call); "nothing was refused" }, error = conditionMessage)
    if (!grepl(words, said, fixed = TRUE)) stop(said)
  }
  refused(ask(release, sex == "women"), "is no cell")
  refused(ask(release, TRUE), "names no attribute")
  refused(ask(release, sex == "female", confidence = 95), "between 0 and 1")
  refused(release_table(release, "height"), "no table of height")
  refused(combine(release, "sex", 1), "one for each cell")
  refused(read_release("nowhere"), "no about.csv")
  cat("read\n")
}
